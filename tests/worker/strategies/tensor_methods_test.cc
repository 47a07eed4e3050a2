// What a job of strategy TENSOR may ask for besides: clipping, parts of a batch, halves, decay, streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/common.h"
#include "tests/worker/strategies/model_rows.h"
#include "tests/worker/strategies/tensor_runs.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

std::string mlp(const char* optimizer, const char* more = "") {
  return pipeline_job(std::string("name: 'mlp' hidden: 16 hidden: 8 hidden: 8 classes: 4 ") + more, 20,
                      optimizer);
}

void expect_same_cut(const std::string& job, const Settings& settings) {
  for (const auto& [data, tensor] : {std::pair(1, 2), {1, 4}, {2, 2}})
    expect_as_one_process(job, made_images(48, 6), data, tensor, settings);
}

TEST(TensorMethodsTest, ClippingIsByTheNormOfAllSlices) {
  const Settings clip{"optimizer.clip_norm=0.05"};
  const std::string job = mlp("kind: SGD learning_rate: 0.1");
  EXPECT_NE(run_leader(job_with(job, clip), 1, made_images(48, 6)).losses,
            run_leader(job_with(job, {}), 1, made_images(48, 6)).losses);
  expect_same_cut(job, clip);
}

TEST(TensorMethodsTest, PartsOfABatch) {
  expect_same_cut(mlp("kind: SGD learning_rate: 0.1", "dropout: 0.2"), {"optimizer.accumulate_steps=3"});
}

TEST(TensorMethodsTest, DecayAndRegularisation) {
  expect_same_cut(
      mlp("kind: MOMENTUM learning_rate: 0.02 weight_decay: 0.1 l2: 0.01 l1: 0.001 clip_value: 0.2"), {});
}

TEST(TensorMethodsTest, GroupsOfVariablesAndFrozenOnes) {
  expect_same_cut(mlp("kind: SGD learning_rate: 0.1"),
                  {"optimizer.group=match: 'mlp/layer0/.*' learning_rate: 0.5",
                   "optimizer.group=match: 'mlp/layer1/kernel' frozen: true"});
}

TEST(TensorMethodsTest, StreamsAndStepsInFlight) {
  expect_same_cut(mlp("kind: SGD learning_rate: 0.1"), {"streams.count=3", "streams.policy=FULL"});
  expect_same_cut(mlp("kind: SGD learning_rate: 0.1"), {"runtime.steps_in_flight=2"});
}

TEST(TensorMethodsTest, RecomputedActivations) {
  const Settings again{"runtime.recompute.scope=mlp/layer[0-9]/.*"};
  for (const auto& [data, tensor] : {std::pair(1, 2), {2, 2}}) {
    const auto rows = made_images(48, 6);
    const std::string job = mlp("kind: SGD learning_rate: 0.1");
    const RankRun plain = run_mesh(job_with(job, in_mesh(data, tensor)), rows);
    EXPECT_EQ(run_mesh(job_with(job, in_mesh(data, tensor) + again), rows).losses, plain.losses);
  }
}

/// Sums over a group are of float32 values that one process would round.
TEST(TensorMethodsTest, WithHalvesItIsNearOneProcess) {
  const std::string job = mlp("kind: SGD learning_rate: 0.05");
  const Settings halves{"runtime.precision=BF16"};
  const auto rows = made_images(48, 6);
  expect_near(run_mesh(job_with(job, in_mesh(1, 2) + halves), rows),
              run_leader(job_with(job, halves), 1, rows), 5e-3);
}

TEST(TensorMethodsTest, ValuesThatTravelAsHalvesAreNearOneProcess) {
  const std::string job = mlp("kind: SGD learning_rate: 0.05");
  const auto rows = made_images(48, 6);
  const RankRun local = run_leader(job_with(job, {}), 1, rows);
  for (const auto& [data, tensor] : {std::pair(1, 2), {2, 2}})
    for (const char* wire : {"BF16", "FP16"}) {
      SCOPED_TRACE(std::to_string(data) + " groups of " + std::to_string(tensor) + ", " + wire);
      const RankRun cut = run_mesh(
          job_with(job, in_mesh(data, tensor) + Settings{std::string("strategy.wire=") + wire}), rows);
      expect_near(cut, local, 5e-3);
      EXPECT_NE(cut.losses, local.losses);
    }
}

/// Small gradients' signs decide, so that roundings show more.
TEST(TensorMethodsTest, WithAdamItIsNearOneProcess) {
  const std::string job = mlp("kind: ADAM learning_rate: 0.001");
  const auto rows = made_images(48, 6);
  expect_near(run_mesh(job_with(job, in_mesh(2, 2)), rows), run_leader(job_with(job, {}), 1, rows), 1e-4);
}

/// The ranks of a group have the same bits of what is whole, and groups have those of each slice.
TEST(TensorMethodsTest, VariablesAreTheSameWhereverTheyAre) {
  const auto runs = run_ranks(job_with(mlp("kind: ADAM learning_rate: 0.01", "dropout: 0.2"), in_mesh(2, 2)),
                              4, made_images(48, 6));
  int slices = 0;
  for (std::size_t r = 1; r < 4; ++r)
    for (const auto& [name, values] : runs[r].values) {
      const bool is_slice = name.find("/slice") != std::string::npos;
      if (is_slice && r % 2 == 1) {
        EXPECT_NE(values, runs[0].values.at(name)) << name;
        EXPECT_EQ(values, runs[1].values.at(name)) << name;
        ++slices;
      } else {
        EXPECT_EQ(values, runs[0].values.at(name)) << name << " of rank " << r;
      }
    }
  EXPECT_GT(slices, 8);
}

TEST(TensorMethodsTest, RowWiseStatesOfATableByColumnsAreRefused) {
  const Settings column{"strategy.tensor.layer=match: 'tokens_table/table' split: COLUMN"};
  const std::string job = pipeline_job(
      "name: 'transformer' hidden: 8 embedding_dim: 8 classes: 3 hash_buckets: 12 sparse_tables: true", 2,
      "kind: ADAGRAD learning_rate: 0.1 row_wise: true");
  EXPECT_THAT(error_of_mesh(job_with(job, in_mesh(1, 2) + column), 2, made_sequences(48)),
              HasSubstr("variable 'tokens_table/table' lies by columns, and optimizer.row_wise"));
}

}  // namespace
}  // namespace braid::worker
