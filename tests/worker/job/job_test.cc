#include "worker/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "worker/job/text_proto.h"

namespace braid::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

proto::Job minimal() {
  return parse_job(
      "model { name: 'mlp' } steps: 3 input { format: IDX global_batch_size: 8 } optimizer { learning_rate: "
      "0.1 }",
      "j");
}

TEST(JobTest, UnknownFieldsNameTheNearestKnownOneAndTheirPlace) {
  EXPECT_EQ(message_of([] { parse_job("seed: 1\noptimizer { learning_rat: 0.1 }", "a.pbtxt"); }),
            "a.pbtxt:2:25: unknown field 'learning_rat' in Optimizer; did you mean 'learning_rate'?");
  EXPECT_THAT(
      message_of([] { parse_job("strategy { kind: ALREDUCE }", "a.pbtxt"); }),
      AllOf(HasSubstr("a.pbtxt:1:"), HasSubstr("'ALREDUCE'"), HasSubstr("did you mean 'ALLREDUCE'?")));
  EXPECT_THAT(message_of([] { parse_job("steps: many", "a.pbtxt"); }), HasSubstr("a.pbtxt:1:8"));
}

TEST(JobTest, MistakesOfSyntaxSayWhatToWrite) {
  const auto refusal = [](const std::string& text) {
    return message_of([&] { parse_job(text, "a.pbtxt"); });
  };
  EXPECT_THAT(refusal("seed: 1\nseed: 2"),
              HasSubstr("a.pbtxt:2:5: Non-repeated field \"seed\" is specified"));
  EXPECT_THAT(refusal("model { }\nmodel { }"), HasSubstr("write both into one { }"));
  EXPECT_THAT(refusal("optimizer { learning_rate: 0,05 }"),
              HasSubstr("numbers have a decimal point, as 0.05"));
  EXPECT_THAT(refusal("strategy { deadline_seconds: 10s }"), HasSubstr("numbers have no units"));
  EXPECT_THAT(refusal("name: mine"), HasSubstr("texts stand in quotes"));
  EXPECT_THAT(refusal("seed = 4"), HasSubstr("write field: value"));
  EXPECT_THAT(refusal("seed: 4.5"), HasSubstr("takes a whole number"));
  EXPECT_THAT(refusal("seed: -4"), HasSubstr("cannot be negative"));
  EXPECT_THAT(refusal("seed: \"4\""), HasSubstr("without quotes"));
  EXPECT_THAT(refusal("input { shuffle: yes }"), HasSubstr("write true or false"));
  EXPECT_THAT(refusal("// mine\nseed: 4"), HasSubstr("comments begin with #"));
  EXPECT_THAT(refusal("{\"name\": \"x\"}"), HasSubstr("this looks like JSON"));
  EXPECT_THAT(refusal("[model]\nname = \"mlp\""), HasSubstr("sections are blocks of a field"));
  EXPECT_THAT(refusal("model { name: \"mlp\" "), HasSubstr("the text ends before"));
  EXPECT_THAT(refusal("seed: 4 }"), HasSubstr("closes no brace"));
  EXPECT_THAT(refusal("name: \xE2\x80\x9Cmine\xE2\x80\x9D"), HasSubstr("typographic quotes"));
  EXPECT_THAT(refusal("\xFF\xFEs\0e\0"), HasSubstr("UTF-16"));
  EXPECT_EQ(parse_job("\xEF\xBB\xBFseed: 4", "a.pbtxt").seed(), 4U) << "behind a byte order mark";
}

TEST(JobTest, AHomeDirectoryThatNoShellHasPutThereIsRefused) {
  for (const char* const field : {"checkpoint.directory", "run_directory", "metrics.steps_file"}) {
    proto::Job job = minimal();
    set_job_field(job, std::string(field) + "=~/x");
    EXPECT_THAT(message_of([&] { check_job(job); }), AllOf(HasSubstr(field), HasSubstr("write $HOME")))
        << field;
  }
  proto::Job job = minimal();
  set_job_field(job, "checkpoint.directory=./~/x");
  EXPECT_NO_THROW(check_job(job));
}

TEST(JobTest, SetTakesBlanksBeforeEqualsAndMessagesInBraces) {
  proto::Job job = minimal();
  set_job_field(job, "steps = 7");
  EXPECT_EQ(job.steps(), 7U);
  set_job_field(job, "optimizer={ kind: ADAM }");
  EXPECT_EQ(job.optimizer().kind(), proto::Optimizer::ADAM);
}

TEST(JobTest, SetOverridesScalarsMessagesAndLists) {
  proto::Job job = minimal();
  set_job_field(job, "optimizer.learning_rate=0.5");
  set_job_field(job, "strategy.kind=PS");
  set_job_field(job, "checkpoint.directory=/a/b c");
  set_job_field(job, "model.hidden=3,4,5");
  set_job_field(job, "input.csv=separator: ';' columns { name: 'x' kind: LABEL }");
  set_job_field(job, "input.csv.columns[0].kind=SKIP");
  EXPECT_FLOAT_EQ(job.optimizer().learning_rate(), 0.5F);
  EXPECT_EQ(job.strategy().kind(), proto::Strategy::PS);
  EXPECT_EQ(job.checkpoint().directory(), "/a/b c");
  EXPECT_THAT(job.model().hidden(), testing::ElementsAre(3, 4, 5));
  EXPECT_EQ(job.input().csv().columns(0).kind(), proto::Column::SKIP);
}

TEST(JobTest, TimesAreThoseThatClocksCanCount) {
  for (const char* field :
       {"strategy.deadline_seconds", "strategy.start_deadline_seconds", "evaluation.patience_seconds",
        "checkpoint.every_seconds", "streams.measure_seconds", "metrics.sample_every_seconds",
        "metrics.progress_seconds"})
    for (const char* value : {"inf", "nan", "1e12", "-1"}) {
      proto::Job job = minimal();
      set_job_field(job, std::string(field) + "=" + value);
      fill_job_defaults(job);
      EXPECT_THAT(message_of([&] { check_job(job); }), HasSubstr(std::string(field) + " must be from "))
          << value;
    }
  proto::Job job = minimal();
  set_job_field(job, "strategy.deadline_seconds=0.003");
  fill_job_defaults(job);
  EXPECT_THAT(message_of([&] { check_job(job); }),
              HasSubstr("strategy.deadline_seconds must be from 0.01 to 10000000, got 0.003"));
}

TEST(JobTest, PrioritiesAreThoseOfStreamsThatExist) {
  proto::Job job = minimal();
  set_job_field(job, "streams.count=2");
  set_job_field(job, "streams.priorities=5,0");
  fill_job_defaults(job);
  check_job(job);
  set_job_field(job, "streams.priorities=5,0,1");
  EXPECT_THAT(message_of([&] { check_job(job); }),
              HasSubstr("streams.priorities are more than streams.count"));
  set_job_field(job, "streams.priorities=6");
  EXPECT_THAT(message_of([&] { check_job(job); }), HasSubstr("streams.priorities must be from 0 to 5"));
}

TEST(JobTest, SharesOfMultiprocessorsAreEntries) {
  proto::Job job = minimal();
  set_job_field(job, "streams.partition=32:group0/.*,25%:compute.,rest:.*");
  ASSERT_EQ(job.streams().partition_size(), 3);
  fill_job_defaults(job);
  check_job(job);
  set_job_field(job, "streams.partition=many:compute.");
  EXPECT_THAT(message_of([&] { check_job(job); }),
              HasSubstr("streams.partition 'many:compute.': 'many' is no number of multiprocessors"));
}

TEST(JobTest, ABatchHasAtMostABillionRows) {
  proto::Job job = minimal();
  set_job_field(job, "input.global_batch_size=2147483648");
  fill_job_defaults(job);
  EXPECT_THAT(message_of([&] { check_job(job); }),
              HasSubstr("input.global_batch_size must be from 1 to 1073741824, got 2147483648"));
}

TEST(JobTest, AutoOfAPipelineGoesByModelledCosts) {
  proto::Job job = minimal();
  set_job_field(job, "strategy.kind=PIPELINE");
  set_job_field(job, "streams.policy=AUTO");
  set_job_field(job, "streams.count=4");
  proto::Job asked = job;
  fill_job_defaults(job);
  EXPECT_FALSE(job.streams().measure());
  check_job(job);
  set_job_field(asked, "streams.measure=true");
  fill_job_defaults(asked);
  EXPECT_THAT(message_of([&] { check_job(asked); }),
              HasSubstr("PIPELINE does not go with streams.measure: workers have different steps"));
}

TEST(JobTest, DynamicShardIsRefusedWhereWorkersStepTogether) {
  const auto refusal = [](std::vector<std::string> fields) {
    proto::Job job = minimal();
    set_job_field(job, "input.shard=DYNAMIC");
    for (const std::string& field : fields) set_job_field(job, field);
    fill_job_defaults(job);
    return message_of([&] { check_job(job); });
  };
  EXPECT_EQ(refusal({"strategy.kind=LOCAL"}), "nothing was thrown");
  EXPECT_EQ(refusal({"strategy.kind=PS", "strategy.consistency=ASP"}), "nothing was thrown");
  for (const char* kind : {"ALLREDUCE", "HYBRID", "PIPELINE", "PS_ALLREDUCE"})
    EXPECT_THAT(
        refusal({"strategy.consistency=ASP", std::string("strategy.kind=") + kind}),
        HasSubstr(std::string("under strategy.kind ") + kind + " all workers make each step together"));
  for (const char* consistency : {"BSP", "SSP", "TIMED"})
    EXPECT_THAT(refusal({"strategy.kind=PS", std::string("strategy.consistency=") + consistency}),
                HasSubstr(std::string("under strategy.consistency ") + consistency + " workers wait"));
  EXPECT_THAT(refusal({"strategy.kind=LOCAL", "input.carry_remainder=true"}), HasSubstr("carry_remainder"));
  EXPECT_THAT(refusal({"strategy.kind=LOCAL", "input.take_batches=-1"}),
              HasSubstr("input.take_batches must be"));
}

TEST(JobTest, SetRefusesWhatItCannotPlace) {
  proto::Job job = minimal();
  EXPECT_THAT(message_of([&] { set_job_field(job, "optimizer.learningrate=1"); }),
              HasSubstr("did you mean 'learning_rate'?"));
  EXPECT_THAT(message_of([&] { set_job_field(job, "optimizer.learning_rate"); }), HasSubstr("expected"));
  EXPECT_THAT(message_of([&] { set_job_field(job, "seed.x=1"); }), HasSubstr("has no fields"));
  EXPECT_THAT(message_of([&] { set_job_field(job, "input.csv.columns[2].name=x"); }),
              HasSubstr("'columns' is empty: set it as a whole"));
  EXPECT_THAT(message_of([&] { set_job_field(job, "streams.count.=1"); }), HasSubstr("expected"));
  EXPECT_THAT(message_of([&] { set_job_field(job, "streams[0].count=1"); }),
              HasSubstr("'streams' is no list"));
  EXPECT_THAT(message_of([&] { set_job_field(job, "streams.priorities[0]=1"); }),
              HasSubstr("'priorities' is set as a whole"));
  set_job_field(job, "input.columns=name: 'a'");
  for (const char* index : {"[x]", "[]", "[-1]", "[1]", ""})
    EXPECT_THAT(message_of([&] { set_job_field(job, std::string("input.columns") + index + ".name=b"); }),
                HasSubstr("'columns' needs an index below 1"))
        << index;
  EXPECT_THAT(message_of([&] { set_job_field(job, "strategy.kind=TREE"); }),
              HasSubstr("unknown value 'TREE' of field 'kind'; known: LOCAL, PS, ALLREDUCE"));
}

TEST(JobTest, TheValuesOfTheMessageAtFaultAreNamed) {
  const std::string optimizers = "unknown value 'LAMB' of field 'kind'; known: SGD, MOMENTUM, ADAGRAD, ADAM";
  for (const char* text :
       {"optimizer { kind: LAMB }", "optimizer: < kind: LAMB >",
        "name: '}' # }\nstreams { } input { csv { } }\n optimizer\n{\n\tkind : LAMB\n}",
        "model { name: \"a\\\"{\" }\noptimizer { group { match: 'x' } learning_rate: 1 kind: LAMB }"})
    EXPECT_THAT(message_of([&] { parse_job(text, "a.pbtxt"); }), HasSubstr(optimizers)) << text;
  EXPECT_THAT(message_of([&] { parse_job("input { columns { name: 'a' kind: FLOAT } }", "a.pbtxt"); }),
              EndsWith("known: SKIP, NUMERIC, CATEGORICAL, LABEL, CLASS, WEIGHT"));
  EXPECT_THAT(message_of([&] { parse_job("optimizer { kind: SGD }\nstrategy { kind: LAMB }", "a.pbtxt"); }),
              HasSubstr(":23: unknown value 'LAMB' of field 'kind'; known: LOCAL, PS"));
}

TEST(JobTest, AnEmptyListIsSetAsAWhole) {
  proto::Job job = minimal();
  EXPECT_THAT(message_of([&] {
                set_job_field(job, "staging.session_stage_subgraph_thread_pool[0].inter_op_threads_num=2");
              }),
              HasSubstr("'session_stage_subgraph_thread_pool' is empty: set it as a whole"));
  set_job_field(job, "staging.session_stage_subgraph_thread_pool=inter_op_threads_num: 2");
  EXPECT_EQ(job.staging().session_stage_subgraph_thread_pool(0).inter_op_threads_num(), 2);
}

TEST(JobTest, NumbersThatAreNoValueOfAnEnumAreRefused) {
  EXPECT_THAT(message_of([] { parse_job("streams { policy: 99 }", "a.pbtxt"); }),
              testing::StartsWith("a.pbtxt: streams.policy: unknown value 99; known: AUTO, NONE, USER, "));
  EXPECT_EQ(message_of([] { parse_job("input { columns { kind: 2 } columns { kind: -1 } }", "a.pbtxt"); }),
            "a.pbtxt: input.columns.kind: unknown value -1; known: SKIP, NUMERIC, CATEGORICAL, LABEL, CLASS, "
            "WEIGHT");
  proto::Job job = minimal();
  EXPECT_EQ(
      message_of([&] { set_job_field(job, "strategy.kind=9"); }),
      "--set strategy.kind=9: kind: unknown value 9; known: LOCAL, PS, ALLREDUCE, HYBRID, PS_ALLREDUCE, "
      "PIPELINE, TENSOR, MIRRORED, EXPERTS");
  EXPECT_EQ(message_of([&] { set_job_field(job, "staging.capacity=7"); }), "nothing was thrown")
      << "which is a number";
  EXPECT_THAT(message_of([&] { set_job_field(job, "staging.num_threads=many"); }),
              HasSubstr("unknown value 'many' of field 'num_threads'; known: DEFAULT, AUTO, a number"));
}

TEST(JobTest, TextsAreTakenAsTheyAre) {
  const auto directory = [](const std::string& value) {
    proto::Job job = minimal();
    set_job_field(job, "checkpoint.directory=" + value);
    return job.checkpoint().directory();
  };
  EXPECT_EQ(directory("a\"b"), "a\"b");
  EXPECT_EQ(directory("\"a b\""), "a b") << "in quotes of their own";
  EXPECT_EQ(directory("a\\tb"), "a\tb") << "as a job file has them";
  for (const char* text : {"plain", "a\"b", "a\\n, b", "two\nlines", "\"", "\xc3\xbc"})
    EXPECT_EQ(directory(text_value(text)), text);
}

TEST(JobTest, DefaultsAreFilledAndKept) {
  proto::Job job = minimal();
  job.mutable_optimizer()->set_beta1(0.5F);
  fill_job_defaults(job);
  check_job(job);
  EXPECT_EQ(job.staging().capacity(), proto::Staging::DEFAULT) << "it follows from the device";
  EXPECT_EQ(job.staging().num_threads(), proto::Staging::DEFAULT);
  EXPECT_EQ(job.strategy().bucket_bytes(), 1 << 20);
  EXPECT_FLOAT_EQ(job.optimizer().beta1(), 0.5F);
  EXPECT_FLOAT_EQ(job.optimizer().beta2(), 0.999F);
  EXPECT_EQ(job.evaluation().batch_size(), 8);
  EXPECT_EQ(job.name(), "mlp");
}

TEST(JobTest, SiblingsAreBatchedUnlessTheJobSaysOff) {
  proto::Job job = minimal();
  fill_job_defaults(job);
  EXPECT_EQ(job.streams().batch_siblings(), proto::Streams::WITHIN_SCOPES);
  EXPECT_EQ(batch_siblings_of(job), BatchSiblings::WithinScopes);
  for (const auto& [name, siblings] : {std::pair{"OFF", BatchSiblings::Off},
                                       {"ACROSS_SCOPES", BatchSiblings::AcrossScopes},
                                       {"WITHIN_SCOPES", BatchSiblings::WithinScopes}}) {
    proto::Job set = minimal();
    set_job_field(set, std::string("streams.batch_siblings=") + name);
    fill_job_defaults(set);
    EXPECT_EQ(batch_siblings_of(set), siblings);
  }
}

TEST(JobTest, ChecksNameTheFieldThatIsMissing) {
  auto broken = [](auto change) {
    proto::Job job = minimal();
    fill_job_defaults(job);
    change(job);
    return message_of([&] { check_job(job); });
  };
  EXPECT_THAT(broken([](proto::Job& j) { j.mutable_model()->clear_name(); }), HasSubstr("model.name"));
  EXPECT_THAT(broken([](proto::Job& j) { j.clear_steps(); }), HasSubstr("steps and epochs"));
  EXPECT_THAT(broken([](proto::Job& j) { j.mutable_input()->clear_global_batch_size(); }),
              HasSubstr("global_batch_size"));
  EXPECT_THAT(broken([](proto::Job& j) {
                j.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
                j.mutable_strategy()->set_average_every_steps(4);
                j.mutable_evaluation()->set_every_steps(6);
              }),
              AllOf(HasSubstr("evaluation.every_steps is 6"), HasSubstr("a multiple")));
  EXPECT_THAT(broken([](proto::Job& j) {
                j.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
                j.mutable_strategy()->set_reduction(proto::Strategy::ADASUM);
                j.mutable_strategy()->mutable_compression()->set_kind(proto::Compression::INT8);
              }),
              HasSubstr("strategy.compression is for sums"));
  EXPECT_THAT(broken([](proto::Job& j) {
                j.mutable_strategy()->set_kind(proto::Strategy::MIRRORED);
                j.mutable_strategy()->set_backend(proto::Strategy::MPI);
              }),
              HasSubstr("replicas are threads of one"));
}

TEST(JobTest, AScaleOfZeroIsRefusedAndNoneIsOne) {
  const auto check = [](const std::string& scale) {
    proto::Job job = parse_job(
        "model { name: 'wide_deep' } steps: 3 optimizer { learning_rate: 0.1 } input { format: CSV "
        "global_batch_size: 2 columns { name: 'age' kind: NUMERIC " +
            scale + " } }",
        "j");
    fill_job_defaults(job);
    check_job(job);
  };
  EXPECT_THAT(message_of([&] { check("scale: 0"); }),
              HasSubstr("input.columns: scale of column 'age' must be finite and not 0, got 0"));
  EXPECT_NO_THROW(check(""));
  EXPECT_NO_THROW(check("scale: -2"));
}

TEST(JobTest, NumbersThatCannotBeMeantAreRefusedByField) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"epochs=-2", "epochs must not be negative, got -2"},
      {"model.hidden=8,-4", "model.hidden must be positive, got -4"},
      {"model.hash_buckets=-1", "model.hash_buckets must not be negative, got -1"},
      {"input.max_bad_records=-1", "input.max_bad_records must not be negative, got -1"},
      {"input.generator.test_rows=-1", "input.generator.test_rows must not be negative, got -1"},
      {"optimizer.learning_rate=inf", "optimizer.learning_rate must be finite, got inf"},
      {"optimizer.learning_rate=-1", "optimizer.learning_rate must be positive, got -1"},
      {"optimizer.momentum=2", "optimizer.momentum must be in [0, 1), got 2"},
      {"optimizer.beta1=1", "optimizer.beta1 must be in [0, 1), got 1"},
      {"optimizer.beta2=nan", "optimizer.beta2 must be in [0, 1), got nan"},
      {"optimizer.epsilon=-1", "optimizer.epsilon must not be negative, got -1"},
      {"optimizer.initial_accumulator=-1", "optimizer.initial_accumulator must not be negative, got -1"},
      {"optimizer.weight_decay=-1", "optimizer.weight_decay must not be negative, got -1"},
      {"schedule.end_factor=-3", "schedule.end_factor must not be negative, got -3"},
      {"evaluation.batch_size=-5", "evaluation.batch_size must be positive, got -5"},
      {"strategy.bucket_bytes=-1", "strategy.bucket_bytes must not be negative, got -1"},
      {"runtime.intra_op_threads=100000", "runtime.intra_op_threads must be at most 1024, got 100000"},
  };
  for (const auto& [assignment, says] : cases) {
    proto::Job job = minimal();
    set_job_field(job, assignment);
    fill_job_defaults(job);
    EXPECT_EQ(message_of([&] { check_job(job); }), "job 'mlp': " + says) << assignment;
  }
}

TEST(JobTest, AdagradBeginsAtZeroWithAnEpsilonOnly) {
  const auto said = [](const std::string& optimizer, const std::string& strategy = "LOCAL") {
    proto::Job job = minimal();
    set_job_field(job, "optimizer.kind=" + optimizer.substr(0, optimizer.find(' ')));
    set_job_field(job, "optimizer.initial_accumulator=0");
    set_job_field(job, "strategy.kind=" + strategy);
    if (optimizer.ends_with(" epsilon")) set_job_field(job, "optimizer.epsilon=1e-8");
    fill_job_defaults(job);
    return message_of([&] { check_job(job); });
  };
  EXPECT_THAT(said("ADAGRAD"), HasSubstr("initial_accumulator 0 needs an epsilon"));
  EXPECT_THAT(said("FTRL"), HasSubstr("initial_accumulator must be positive for FTRL"));
  for (const char* strategy : {"LOCAL", "PS", "HYBRID"})
    EXPECT_EQ(said("ADAGRAD epsilon", strategy), "nothing was thrown") << strategy;
}

TEST(JobTest, VisibleDevicesAreDifferentNumbers) {
  proto::Job job = minimal();
  fill_job_defaults(job);
  EXPECT_THAT(visible_devices(job), IsEmpty());
  job.mutable_runtime()->set_visible_device_list("2,0,11");
  check_job(job);
  EXPECT_THAT(visible_devices(job), ElementsAre(2, 0, 11));
  for (const char* list : {"1,x", "1,", ",", "1,1", "-1", "1 2", "99999999999"}) {
    job.mutable_runtime()->set_visible_device_list(list);
    EXPECT_EQ(message_of([&] { check_job(job); }), "runtime.visible_device_list '" + std::string(list) +
                                                       "': expected distinct GPU ordinals, such as 1,0");
  }
}

TEST(JobTest, AStepDecayNeedsItsStepAndItsFactor) {
  proto::Job job = minimal();
  set_job_field(job, "schedule.kind=STEP_DECAY");
  fill_job_defaults(job);
  EXPECT_THAT(message_of([&] { check_job(job); }),
              HasSubstr("schedule.kind STEP_DECAY needs schedule.factor"));
  set_job_field(job, "schedule.factor=-1");
  EXPECT_THAT(message_of([&] { check_job(job); }), HasSubstr("schedule.factor must be positive, got -1"));
  set_job_field(job, "schedule.factor=0.1");
  EXPECT_THAT(message_of([&] { check_job(job); }),
              HasSubstr("schedule.kind STEP_DECAY needs schedule.every"));
  set_job_field(job, "schedule.every=10");
  check_job(job);
}

TEST(JobTest, S4_OnOneStreamAutoMeansThatScopesMeanNothing) {
  proto::Job job = minimal();
  fill_job_defaults(job);
  EXPECT_EQ(stream_options(job).policy, StreamPolicy::None);
  job.mutable_streams()->set_policy(proto::Streams::USER);
  EXPECT_EQ(stream_options(job).policy, StreamPolicy::User) << "who insists is told what does not fit";
  job.mutable_streams()->set_policy(proto::Streams::AUTO);
  job.mutable_streams()->set_count(2);
  EXPECT_EQ(stream_options(job).policy, StreamPolicy::Auto);
}

TEST(JobTest, StreamPoliciesAreThoseOfTheEngine) {
  const auto& policies = *proto::Streams::Policy_descriptor();
  std::vector<std::string> names;
  for (int i = 0; i < policies.value_count(); ++i) names.emplace_back(policies.value(i)->name());
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(stream_policy_names()));
}

TEST(JobTest, StreamsWaitForMemoryUnlessTheJobSaysNot) {
  proto::Job job;
  fill_job_defaults(job);
  EXPECT_EQ(stream_options(job).memory_waits_from, StreamOptions{}.memory_waits_from);
  job.mutable_streams()->set_memory_waits(false);
  EXPECT_EQ(stream_options(job).memory_waits_from, kNoMemoryWaits);
}

TEST(JobTest, EveryShippedJobFileIsGood) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(BRAID_SOURCE_DIR) / "examples/jobs")) {
    EXPECT_NO_THROW(load_job(entry.path(), {})) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 5);
}

TEST(JobTest, NearestTakesSmallSlipsOnly) {
  EXPECT_EQ(nearest("stpes", {"steps", "seed"}), "steps");
  EXPECT_EQ(nearest("qqqqqqqq", {"steps", "seed"}), "");
}

}  // namespace
}  // namespace braid::worker
