// Settings that nothing reads are said by name, those of the files that come with the project have an effect.
#include "worker/job/unused_fields.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/files.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> idle(const std::string& text) { return unused_fields(parse_job(text, "test")); }

TEST(UnusedFieldsTest, StagingThatIsOffReadsNothing) {
  EXPECT_THAT(idle("staging { capacity: 4 num_threads: 2 timeout_millis: 5 on_timeout: WAIT }"), IsEmpty());
  EXPECT_THAT(idle("staging { enabled: false capacity: 4 timeout_millis: 5 }"),
              ElementsAre("staging.capacity has no effect: staging.enabled is false",
                          "staging.timeout_millis has no effect: staging.enabled is false"));
  EXPECT_THAT(idle("staging { enabled: false auto_stage: true timeout_millis: 5 }"), IsEmpty())
      << "of the part of the model that is computed in front of the step";
}

TEST(UnusedFieldsTest, AJobThatIsPrintedHasNoWarnings) {
  proto::Job job =
      parse_job("model { name: 'mlp' } optimizer { kind: SGD learning_rate: 0.1 momentum: 0.5 }", "test");
  fill_job_defaults(job);
  EXPECT_THAT(unused_fields(job), testing::Not(IsEmpty()));
  proto::Job printed = job;
  clear_unused_defaults(printed);
  EXPECT_THAT(unused_fields(printed), ElementsAre("optimizer.momentum has no effect: optimizer.kind is SGD"))
      << "what is not as the defaults make it stays";
  fill_job_defaults(printed);
  EXPECT_EQ(printed.SerializeAsString(), job.SerializeAsString()) << "and nothing else has changed";
}

TEST(UnusedFieldsTest, PoolsOfStagesNeedTheirSwitch) {
  EXPECT_THAT(idle("staging { session_stage_subgraph_thread_pool { } }"),
              ElementsAre("staging.session_stage_subgraph_thread_pool has no effect: "
                          "staging.use_stage_subgraph_thread_pool is not set"));
  EXPECT_THAT(idle("staging { use_stage_subgraph_thread_pool: true session_stage_subgraph_thread_pool { } }"),
              IsEmpty());
}

TEST(UnusedFieldsTest, AStageNeedsSomethingToComputeOnItsStream) {
  EXPECT_THAT(
      idle("staging { stage_multi_stream: true }"),
      ElementsAre("staging.stage_multi_stream has no effect: staging.stage_subgraph_stream_id is 0: the "
                  "stage computes on the host"));
  EXPECT_THAT(
      idle("streams { count: 2 } staging { stage_multi_stream: true stage_subgraph_stream_id: 1 }"),
      ElementsAre("staging.stage_multi_stream has no effect: staging.auto_stage is not set: the stage "
                  "only reads",
                  "staging.stage_subgraph_stream_id has no effect: staging.auto_stage is not set: the "
                  "stage only reads"));
  EXPECT_THAT(idle("streams { count: 2 } staging { auto_stage: true stage_multi_stream: true "
                   "stage_subgraph_stream_id: 1 }"),
              IsEmpty());
}

TEST(UnusedFieldsTest, OneStreamHasNoPolicyAndOnlyAutoMeasures) {
  EXPECT_THAT(
      idle("streams { count: 1 policy: COST forward_propagation: true memory_waits: false "
           "measure_seconds: 2 }"),
      ElementsAre("streams.policy has no effect: there is one compute stream (streams.count)",
                  "streams.forward_propagation has no effect: there is one compute stream (streams.count)",
                  "streams.measure_seconds has no effect: there is one compute stream (streams.count)",
                  "streams.memory_waits has no effect: there is one compute stream (streams.count)"));
  EXPECT_THAT(idle("streams { count: 1 policy: USER rules_file: 'r' }"), IsEmpty())
      << "who insists is told which ids do not exist";
  EXPECT_THAT(idle("streams { count: 2 policy: NONE rules_file: 'r' forward_propagation: true }"),
              ElementsAre("streams.rules_file has no effect: streams.policy is NONE",
                          "streams.forward_propagation has no effect: streams.policy is NONE"));
  EXPECT_THAT(idle("streams { count: 2 policy: COST measure: false }"),
              ElementsAre("streams.measure has no effect: only streams.policy AUTO measures"));
  EXPECT_THAT(idle("streams { count: 2 measure: false measure_seconds: 2 }"),
              ElementsAre("streams.measure_seconds has no effect: streams.measure is false"));
  EXPECT_THAT(idle("streams { count: 2 measure_seconds: 2 rules_file: 'r' forward_propagation: true }"),
              IsEmpty());
}

TEST(UnusedFieldsTest, AStrategyHasItsOwnSettings) {
  EXPECT_THAT(idle("strategy { consistency: ASP backend: MPI bucket_bytes: 5 deadline_seconds: 5 }"),
              ElementsAre("strategy.consistency has no effect: strategy.kind is LOCAL",
                          "strategy.backend has no effect: strategy.kind is LOCAL",
                          "strategy.bucket_bytes has no effect: strategy.kind is LOCAL",
                          "strategy.deadline_seconds has no effect: strategy.kind is LOCAL"));
  EXPECT_THAT(idle("strategy { kind: PS consistency: ASP backend: MPI bucket_bytes: 5 }"),
              ElementsAre("strategy.backend has no effect: strategy.kind is PS"));
  EXPECT_THAT(idle("strategy { kind: ALLREDUCE backend: MPI consistency: ASP tls { ca_file: 'c' } }"),
              ElementsAre("strategy.consistency has no effect: strategy.kind is ALLREDUCE",
                          "strategy.tls has no effect: strategy.backend MPI has connections of its own"));
}

TEST(UnusedFieldsTest, AnOptimizerAndAScheduleHaveTheirOwnSettings) {
  EXPECT_THAT(idle("optimizer { momentum: 0.5 nesterov: true beta1: 0.5 epsilon: 1 }"),
              ElementsAre("optimizer.momentum has no effect: optimizer.kind is SGD",
                          "optimizer.nesterov has no effect: optimizer.kind is SGD",
                          "optimizer.beta1 has no effect: optimizer.kind is SGD",
                          "optimizer.epsilon has no effect: optimizer.kind is SGD"));
  EXPECT_THAT(idle("optimizer { kind: MOMENTUM momentum: 0.5 nesterov: true weight_decay: 1 }"), IsEmpty());
  EXPECT_THAT(idle("optimizer { kind: ADAM beta2: 0.5 epsilon: 1 initial_accumulator: 1 }"),
              ElementsAre("optimizer.initial_accumulator has no effect: optimizer.kind is ADAM"));
  EXPECT_THAT(idle("optimizer { kind: FTRL l1: 1 l2: 1 l2_shrinkage: 1 learning_rate_power: -1 rho: 0.5 }"),
              ElementsAre("optimizer.rho has no effect: optimizer.kind is FTRL"));
  EXPECT_THAT(idle("optimizer { kind: RMSPROP momentum: 0.5 rho: 0.5 centered: true epsilon: 1 beta1: 0.5 }"),
              ElementsAre("optimizer.beta1 has no effect: optimizer.kind is RMSPROP"));
  EXPECT_THAT(idle("optimizer { kind: ADAMW beta1: 0.5 epsilon: 1 weight_decay: 1 clip_value: 1 l1: 1 }"),
              IsEmpty());
  EXPECT_THAT(idle("schedule { end_factor: 0.5 every: 3 warmup_steps: 5 }"),
              ElementsAre("schedule.end_factor has no effect: schedule.kind is CONSTANT",
                          "schedule.every has no effect: schedule.kind is CONSTANT"));
  EXPECT_THAT(idle("schedule { kind: STEP_DECAY every: 3 factor: 0.5 }"), IsEmpty());
  EXPECT_THAT(idle("schedule { kind: COSINE_DECAY end_factor: 0.5 }"), IsEmpty());
}

TEST(UnusedFieldsTest, AGroupOfVariablesHasTheSettingsOfItsKind) {
  EXPECT_THAT(idle("optimizer { kind: ADAM group { match: 'a' beta1: 0.5 rho: 0.5 } "
                   "group { match: 'b' kind: FTRL beta1: 0.5 l1: 1 initial_accumulator: 1 } }"),
              ElementsAre("optimizer.group[0].rho has no effect: optimizer.kind is ADAM",
                          "optimizer.group[1].beta1 has no effect: optimizer.group[1].kind is FTRL"));
  EXPECT_THAT(
      idle("optimizer { group { match: 'a' frozen: true learning_rate: 1 } }"),
      ElementsAre("optimizer.group[0].learning_rate has no effect: optimizer.group[0].frozen is set"));
}

TEST(UnusedFieldsTest, AModelHasItsOwnSettings) {
  EXPECT_THAT(idle("model { name: 'linear_regression' hidden: 4 }"),
              ElementsAre("model.hidden has no effect: model 'linear_regression' has no hidden layers"));
  EXPECT_THAT(idle("model { name: 'mlp' hidden: 4 classes: 3 dropout: 0.5 embedding_dim: 4 tasks: 't' }"),
              ElementsAre("model.embedding_dim has no effect: model 'mlp' has no embeddings",
                          "model.tasks has no effect: model 'mlp' has no experts and tasks"));
  EXPECT_THAT(idle("model { name: 'dlrm' hidden: 4 embedding_dim: 4 hash_buckets: 9 sparse_tables: true "
                   "embedding_init: 1 classes: 3 }"),
              ElementsAre("model.classes has no effect: model 'dlrm' has no classes"));
  EXPECT_THAT(idle("model { name: 'mmoe' hidden: 4 embedding_dim: 4 experts: 2 tasks: 't' }"), IsEmpty());
  EXPECT_THAT(idle("model { name: 'transformer' embedding_dim: 4 classes: 2 }"), IsEmpty());
}

TEST(UnusedFieldsTest, BucketsOfColumnsAreStrongerThanTheModels) {
  const auto with = [](const std::string& column) {
    return idle(
        "model { name: 'wide_deep' hash_buckets: 9 } input { format: CSV columns { name: 'a' kind: "
        "CATEGORICAL " +
        column + " } columns { name: 'y' kind: LABEL } }");
  };
  EXPECT_THAT(with("buckets: 3"), ElementsAre("model.hash_buckets has no effect: each categorical column has "
                                              "buckets or a vocabulary of its own"));
  EXPECT_EQ(with("vocabulary: 'x'").size(), 1U);
  EXPECT_THAT(with(""), IsEmpty());
}

TEST(UnusedFieldsTest, ScopesWinOverRulesOnlyWhereThereAreBoth) {
  EXPECT_THAT(idle("streams { count: 2 scopes_win: true }"),
              ElementsAre("streams.scopes_win has no effect: streams.rules_file is not set"));
  EXPECT_THAT(idle("streams { count: 2 scopes_win: true ignore_scopes: true rules_file: 'r' }"),
              ElementsAre("streams.scopes_win has no effect: streams.ignore_scopes is set"));
  EXPECT_THAT(idle("streams { count: 2 scopes_win: true rules_file: 'r' }"), IsEmpty());
}

TEST(UnusedFieldsTest, AFormatHasItsOwnSettings) {
  EXPECT_THAT(idle("input { format: SYNTHETIC train_files: 'a' shuffle: false shuffle_buffer: 5 }"),
              ElementsAre("input.train_files has no effect: input.format is SYNTHETIC",
                          "input.shuffle_buffer has no effect: input.shuffle is false"));
  EXPECT_THAT(
      idle("input { format: IDX train_files: 'a' max_bad_records: 4 columns { name: 'c' } csv { header: "
           "true } generator { rows: 5 } criteo { dense: RAW } }"),
      ElementsAre("input.csv.header has no effect: input.format is IDX",
                  "input.max_bad_records has no effect: input.format is IDX",
                  "input.columns has no effect: input.format is IDX",
                  "input.generator has no effect: input.format is IDX",
                  "input.criteo has no effect: input.format is IDX"));
  EXPECT_THAT(idle("input { format: CSV csv { separator: ';' columns { name: 'c' kind: LABEL } } }"),
              IsEmpty());
  EXPECT_THAT(idle("input { format: CSV columns { name: 'c' kind: LABEL } csv { columns { name: 'd' } } }"),
              ElementsAre("input.csv.columns has no effect: input.columns is set"));
}

TEST(UnusedFieldsTest, AColumnHasTheSettingsOfItsKind) {
  const auto column = [](const std::string& text, const std::string& format = "CSV") {
    return idle("input { format: " + format + " columns { name: 'c' " + text + " } }");
  };
  EXPECT_THAT(column("kind: NUMERIC shift: 1 scale: 2 log1p: true missing: 3"), IsEmpty());
  EXPECT_THAT(column("kind: NUMERIC buckets: 3 positive: 'p' list_separator: ';'"),
              ElementsAre("buckets of column 'c' has no effect: its kind is NUMERIC",
                          "positive of column 'c' has no effect: its kind is NUMERIC",
                          "list_separator of column 'c' has no effect: its length is 1"));
  EXPECT_THAT(column("kind: CATEGORICAL buckets: 3 length: 2 list_separator: ';' scale: 2 missing: 1"),
              ElementsAre("scale of column 'c' has no effect: its kind is CATEGORICAL",
                          "missing of column 'c' has no effect: its kind is CATEGORICAL"));
  EXPECT_THAT(column("kind: LABEL positive: 'p' length: 3 missing: 1"), IsEmpty());
  EXPECT_THAT(column("kind: CLASS buckets: 3"),
              ElementsAre("buckets of column 'c' has no effect: its kind is CLASS"));
  EXPECT_THAT(column("kind: CLASS buckets: 3", "GENERATOR"), IsEmpty()) << "so many classes are drawn";
  EXPECT_THAT(column("kind: SKIP output: 'o'"),
              ElementsAre("output of column 'c' has no effect: its kind is SKIP"));
}

TEST(UnusedFieldsTest, WhatIsNotEvaluatedStoredOrSampledHasNoSettings) {
  EXPECT_THAT(idle("input { test_files: 'a' } evaluation { enabled: false every_steps: 5 batch_size: 4 }"),
              ElementsAre("evaluation.every_steps has no effect: evaluation.enabled is false"));
  EXPECT_THAT(idle("input { format: CSV } evaluation { every_steps: 5 }"),
              ElementsAre("evaluation.every_steps has no effect: input.test_files is not set"));
  EXPECT_THAT(idle("input { format: GENERATOR } evaluation { batch_size: 5 }"),
              ElementsAre("evaluation.batch_size has no effect: input.generator.test_rows is not set"));
  EXPECT_THAT(idle("checkpoint { every_steps: 5 keep: 2 keep_best: 1 }"),
              ElementsAre("checkpoint.every_steps has no effect: checkpoint.directory is not set",
                          "checkpoint.keep has no effect: checkpoint.directory is not set",
                          "checkpoint.keep_best has no effect: checkpoint.directory is not set"));
  EXPECT_THAT(idle("checkpoint { directory: 'd' every_steps: 5 keep: 2 }"), IsEmpty());
  EXPECT_THAT(idle("metrics { sampling: false sample_every_seconds: 5 }"),
              ElementsAre("metrics.sample_every_seconds has no effect: metrics.sampling is false"));
}

TEST(UnusedFieldsTest, TheHostHasNoneOfADevicesSettings) {
  const auto idle_on = [](const std::string& device, SettingsFor purpose) {
    const proto::Job job = parse_job(
        "runtime { device_memory_limit: 5 tf32: false intra_op_threads: 2 device: " + device + " }", "test");
    return unused_device_fields(job, purpose);
  };
  EXPECT_THAT(idle_on("CPU", SettingsFor::Training),
              ElementsAre("runtime.device_memory_limit has no effect: the device is the CPU",
                          "runtime.tf32 has no effect: the device is the CPU"));
  EXPECT_THAT(idle_on("CPU", SettingsFor::Inference),
              ElementsAre("runtime.tf32 has no effect: the device is the CPU"))
      << "groups share the limit on the host, too";
  EXPECT_THAT(idle_on("CUDA", SettingsFor::Training), IsEmpty());
}

TEST(UnusedFieldsTest, PrecisionHasTheSettingsOfItsKind) {
  EXPECT_THAT(
      idle("runtime { device: CPU mixed_precision { keep_ops: 'Einsum' } }"),
      ElementsAre("runtime.mixed_precision has no effect: runtime.precision is neither BF16 nor FP16"));
  EXPECT_THAT(
      idle("runtime { device: CPU precision: BF16 mixed_precision { keep_ops: 'Einsum' loss_scale: 8 } }"),
      ElementsAre("runtime.mixed_precision.loss_scale has no effect: runtime.precision is not FP16"));
  EXPECT_THAT(idle("runtime { precision: FP16 mixed_precision { loss_scale: 8 loss_scale_steps: 9 } }"),
              IsEmpty());
  EXPECT_THAT(idle("runtime { device: CUDA precision: FP32 tf32: true }"),
              ElementsAre("runtime.tf32 has no effect: runtime.precision is FP32"));
  EXPECT_THAT(idle("strategy { wire: BF16 }"),
              ElementsAre("strategy.wire has no effect: strategy.kind is LOCAL"));
  EXPECT_THAT(idle("strategy { kind: HYBRID wire: BF16 }"), IsEmpty());
}

TEST(UnusedFieldsTest, EveryShippedJobFileMeansAllThatItSays) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(BRAID_SOURCE_DIR) / "examples/jobs"))
    EXPECT_THAT(unused_fields(parse_job(read_file(entry.path()), entry.path().string())), IsEmpty())
        << entry.path();
}

}  // namespace
}  // namespace braid::worker
