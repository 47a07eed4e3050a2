// Pipelines of ranks that are threads, against the run of one process with as many parts
// (optimizer.accumulate_steps).
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/strategies/model_rows.h"
#include "tests/worker/strategies/pipeline_runs.h"

namespace braid::worker {
namespace {

struct Case {
  const char* name;
  const char* model;
  std::shared_ptr<const Table> (*rows)();
  const char* optimizer = "kind: ADAM learning_rate: 0.01";
  double most = 0;  // that losses and variables may differ
};

std::string job_text(const Case& of, int steps) { return pipeline_job(of.model, steps, of.optimizer); }

const Case kMlp{"mlp", "name: 'mlp' hidden: 16 hidden: 12 hidden: 8 classes: 4",
                [] { return made_images(48, 6); }};
const Case kMlpDropout{"mlp_dropout", "name: 'mlp' hidden: 16 hidden: 12 hidden: 8 classes: 4 dropout: 0.3",
                       [] { return made_images(48, 6); }};
const Case kCnn{"cnn", "name: 'cnn' hidden: 4 hidden: 6 hidden: 8 classes: 4",
                [] { return made_images(48, 16); }, "kind: MOMENTUM learning_rate: 0.02"};
const Case kResNet{"resnet18", "name: 'resnet18' classes: 4", [] { return made_images(24, 16); },
                   "kind: MOMENTUM learning_rate: 0.01"};
const Case kTransformer{
    "transformer", "name: 'transformer' hidden: 8 hidden: 8 embedding_dim: 8 classes: 3 hash_buckets: 12",
    [] { return made_sequences(48); }};
const Case kDin{"din", "name: 'din' hidden: 8 hidden: 4 embedding_dim: 4 hash_buckets: 9",
                [] { return made_histories(48); }};
const Case kDinSparse{"din_sparse",
                      "name: 'din' hidden: 8 hidden: 4 embedding_dim: 4 hash_buckets: 9 sparse_tables: true",
                      [] { return made_histories(48); }, "kind: ADAGRAD learning_rate: 0.05"};
const Case kWideDeep{"wide_deep", "name: 'wide_deep' hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 30",
                     [] { return made_rows(48); }, "kind: SGD learning_rate: 0.1"};

void expect_same(const RankRun& a, const RankRun& b, double most) {
  EXPECT_EQ(a.values.size(), b.values.size());
  if (most == 0)
    expect_equal(a, b);
  else
    expect_near(a, b, most);
}

class PipelineTest : public ::testing::TestWithParam<Case> {};

TEST_P(PipelineTest, LossesAndVariablesAreThoseOfOneProcess) {
  const Case& of = GetParam();
  const auto rows = of.rows();
  for (const int parts : {1, 4}) {
    const RankRun local = run_leader(job_with(job_text(of, 20), accumulated(parts)), 1, rows);
    for (const int world : {1, 2, 3, 4})
      for (const char* schedule : {"ONE_F_ONE_B", "GPIPE"}) {
        SCOPED_TRACE(std::to_string(world) + " stages, " + std::to_string(parts) + " parts, " + schedule);
        expect_same(run_pipeline(job_with(job_text(of, 20), pipelined(parts, schedule)), world, rows), local,
                    of.most);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineTest,
                         ::testing::Values(kMlp, kMlpDropout, kCnn, kTransformer, kDin, kDinSparse,
                                           kWideDeep),
                         [](const auto& info) { return std::string(info.param.name); });

RankRun later_steps(RankRun run, std::ptrdiff_t first) {
  run.losses.erase(run.losses.begin(), run.losses.begin() + first);
  return run;
}

TEST(PipelineCheckpointTest, AnyNumberOfStagesAndOneProcessGoOnWithTheSameBits) {
  const auto rows = kTransformer.rows();
  const auto job = [&](int steps, const Settings& settings) {
    return job_with(job_text(kTransformer, steps), settings);
  };
  const RankRun expected = later_steps(run_leader(job(20, accumulated(4)), 1, rows), 10);
  for (const int first : {1, 3})
    for (const int second : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(first) + " workers, then " + std::to_string(second));
      TempDir directory;
      const Settings saved{"checkpoint.every_steps=10", "checkpoint.directory=" + directory.path().string()};
      const auto of = [&](int world) { return (world == 1 ? accumulated(4) : pipelined(4)) + saved; };
      together(run_ranks(job(10, of(first)), first, rows));
      expect_same(run_pipeline(job(20, of(second)), second, rows, RunStart::Resume), expected, 0);
    }
}

TEST(PipelineCheckpointTest, WhatWasInterruptedBetweenCheckpointsGoesOn) {
  const auto rows = kMlp.rows();
  TempDir directory;
  const Settings saved = pipelined(2) + Settings{"checkpoint.every_steps=4",
                                                 "checkpoint.directory=" + directory.path().string()};
  const RankRun whole = run_pipeline(job_with(job_text(kMlp, 12), pipelined(2)), 3, rows);
  run_pipeline(job_with(job_text(kMlp, 6), saved), 3, rows);
  expect_same(run_pipeline(job_with(job_text(kMlp, 12), saved), 3, rows, RunStart::Resume),
              later_steps(whole, 6), 0);
}

/// Its blocks have shortcuts, and its batch norms means that they move.
TEST(PipelineMethodsTest, AResNetOverThreeStagesIsThatOfOneProcess) {
  const auto rows = kResNet.rows();
  const RankRun local = run_leader(job_with(job_text(kResNet, 2), accumulated(2)), 1, rows);
  expect_same(run_pipeline(job_with(job_text(kResNet, 2), pipelined(2)), 3, rows), local, 0);
}

TEST(PipelineMethodsTest, RecomputedActivationsHaveTheSameBits) {
  const auto rows = kMlp.rows();
  const Settings again{"runtime.recompute.scope=mlp/(layer[0-9])/.*"};
  const RankRun plain = run_leader(job_with(job_text(kMlp, 10), accumulated(4)), 1, rows);
  for (const int world : {1, 2, 3})
    expect_same(run_pipeline(job_with(job_text(kMlp, 10), pipelined(4) + again), world, rows), plain, 0);
}

TEST(PipelineMethodsTest, StreamsStepsInFlightAndClippingLeaveTheBitsThoseOfOneProcess) {
  const auto rows = kDin.rows();
  for (const Settings& how : {Settings{"streams.count=3", "streams.policy=FULL"},
                              Settings{"runtime.steps_in_flight=1"}, Settings{"optimizer.clip_norm=0.1"}}) {
    SCOPED_TRACE(how[0]);
    const RankRun local = run_leader(job_with(job_text(kDin, 10), accumulated(4) + how), 1, rows);
    expect_same(run_pipeline(job_with(job_text(kDin, 10), pipelined(4) + how), 3, rows), local, 0);
  }
}

/// What a cut sends is float32 where one process would store it as halves.
TEST(PipelineMethodsTest, WithHalvesItIsNearOneProcess) {
  const auto rows = kDin.rows();
  const Settings halves{"runtime.precision=BF16", "optimizer.kind=SGD", "optimizer.learning_rate=0.05"};
  const RankRun local = run_leader(job_with(job_text(kDin, 10), accumulated(4) + halves), 1, rows);
  expect_same(run_pipeline(job_with(job_text(kDin, 10), pipelined(4) + halves), 3, rows), local, 2e-3);
}

/// Stages in the middle read no columns.
TEST(PipelineMethodsTest, AStageMakesTheColumnsThatItReads) {
  const proto::Job job = job_with(
      job_text(kMlp, 3), pipelined(4) + stages({".*/layer0/.*", ".*/layer1/.*", "logits/.*|.*/layer2/.*"}));
  const auto runs = run_ranks(job, 3, kMlp.rows());
  EXPECT_TRUE(runs[1].values.contains("mlp/layer1/kernel"));
  EXPECT_EQ(runs[1].values.size(), 6u) << "weights and biases with two slots each";
  together(runs);
}

}  // namespace
}  // namespace braid::worker
