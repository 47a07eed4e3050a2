// Layers that are cut over ranks that are threads, against the run of one process: models of the zoo, and
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checkpoint_values.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/strategies/model_rows.h"
#include "tests/worker/strategies/tensor_runs.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  const char* model;
  std::shared_ptr<const Table> (*rows)();
  const char* cut;  // what the plan of groups of two says
  const char* optimizer = "kind: MOMENTUM learning_rate: 0.02";
};

std::shared_ptr<const Table> made_ads() { return made_rows(48); }

const Case kMlp{"mlp", "name: 'mlp' hidden: 16 hidden: 12 hidden: 8 classes: 4",
                [] { return made_images(48, 6); }, "6 variables cut"};
const Case kDropout{"mlp_dropout", "name: 'mlp' hidden: 16 hidden: 12 hidden: 8 classes: 4 dropout: 0.3",
                    [] { return made_images(48, 6); }, "6 variables cut"};
const Case kTransformer{
    "transformer", "name: 'transformer' hidden: 8 hidden: 16 embedding_dim: 8 classes: 3 hash_buckets: 12",
    [] { return made_sequences(48); }, "20 variables cut"};
const Case kTransformerDropout{"transformer_dropout",
                               "name: 'transformer' hidden: 8 embedding_dim: 8 classes: 3 hash_buckets: 12 "
                               "dropout: 0.2 sparse_tables: true",
                               [] { return made_sequences(48); }, "10 variables cut"};
const Case kWideDeep{"wide_deep", "name: 'wide_deep' hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 30",
                     made_ads, "3 variables cut"};
const Case kDlrm{"dlrm",
                 "name: 'dlrm' hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 30 "
                 "sparse_tables: true",
                 made_ads, "variables cut"};

std::string job_text(const Case& of, int steps) { return pipeline_job(of.model, steps, of.optimizer); }

class TensorTest : public ::testing::TestWithParam<Case> {};

TEST_P(TensorTest, LossesAndVariablesAreThoseOfOneProcess) {
  const Case& of = GetParam();
  for (const auto& [data, tensor] : {std::pair(1, 2), {1, 4}, {2, 2}, {2, 1}, {3, 1}})
    expect_as_one_process(job_text(of, 20), of.rows(), data, tensor);
}

TEST_P(TensorTest, WithRowsBetweenPairsToo) {
  const Case& of = GetParam();
  for (const auto& [data, tensor] : {std::pair(1, 2), {1, 4}, {2, 2}})
    expect_as_one_process(job_text(of, 20), of.rows(), data, tensor, {"strategy.tensor.sequence=true"});
}

TEST_P(TensorTest, AGroupOfOneHasTheBitsOfOneProcess) {
  const Case& of = GetParam();
  expect_equal(run_mesh(job_with(job_text(of, 10), in_mesh(1, 1)), of.rows()),
               run_leader(job_with(job_text(of, 10), {}), 1, of.rows()));
}

TEST_P(TensorTest, ThePlanSaysWhatIsCut) {
  const Case& of = GetParam();
  const auto rows = of.rows();
  EXPECT_THAT(plan_text(job_with(job_text(of, 1), in_mesh(1, 2)), 2, *rows), HasSubstr(of.cut));
}

INSTANTIATE_TEST_SUITE_P(Models, TensorTest,
                         ::testing::Values(kMlp, kDropout, kTransformer, kTransformerDropout, kWideDeep,
                                           kDlrm),
                         [](const auto& info) { return std::string(info.param.name); });

/// By name; of the newest checkpoint.
std::map<std::string, std::vector<std::byte>> stored_values(const std::filesystem::path& directory) {
  const CheckpointValues values(*CheckpointStore(directory).newest());
  std::map<std::string, std::vector<std::byte>> all;
  for (const auto& [name, info] : values.values()) all[name] = values.read(name);
  return all;
}

Settings saved_in(const TempDir& directory) {
  return {"checkpoint.every_steps=10", "checkpoint.directory=" + directory.path().string()};
}

TEST(TensorCheckpointTest, ACheckpointIsThatOfOneProcess) {
  const auto rows = kTransformer.rows();
  TempDir of_one, of_many;
  run_leader(job_with(job_text(kTransformer, 10), saved_in(of_one)), 1, rows);
  run_mesh(job_with(job_text(kTransformer, 10), in_mesh(1, 2) + saved_in(of_many)), rows);
  const auto one = stored_values(of_one.path()), many = stored_values(of_many.path());
  ASSERT_EQ(one.size(), many.size());
  for (const auto& [name, bytes] : one) {
    ASSERT_TRUE(many.contains(name)) << name;
    ASSERT_EQ(many.at(name).size(), bytes.size()) << name;
    const auto* a = reinterpret_cast<const float*>(bytes.data());
    const auto* b = reinterpret_cast<const float*>(many.at(name).data());
    for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << name;
  }
}

TEST(TensorCheckpointTest, AnyMeshAndOneProcessGoOn) {
  const auto rows = kMlp.rows();
  const RankRun whole = run_leader(job_with(job_text(kMlp, 20), {}), 1, rows);
  const auto meshes = {std::pair(1, 1), {1, 2}, {1, 4}, {2, 2}};
  for (const auto& [data, tensor] : meshes)
    for (const auto& [next_data, next_tensor] : meshes) {
      SCOPED_TRACE(std::to_string(data) + "x" + std::to_string(tensor) + ", then " +
                   std::to_string(next_data) + "x" + std::to_string(next_tensor));
      TempDir directory;
      run_mesh(job_with(job_text(kMlp, 10), in_mesh(data, tensor) + saved_in(directory)), rows);
      const RankRun rest =
          run_mesh(job_with(job_text(kMlp, 20), in_mesh(next_data, next_tensor) + saved_in(directory)), rows,
                   RunStart::Resume);
      ASSERT_EQ(rest.losses.size(), 10u);
      for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(rest.losses[i], whole.losses[10 + i], 1e-6);
    }
}

TEST(TensorCheckpointTest, TheSameMeshGoesOnWithTheSameBits) {
  const auto rows = kTransformerDropout.rows();
  const auto job = [&](int steps, const Settings& settings) {
    return job_with(job_text(kTransformerDropout, steps), in_mesh(2, 2) + settings);
  };
  TempDir unbroken, broken;
  const RankRun whole = run_mesh(job(20, saved_in(unbroken)), rows);
  run_mesh(job(10, saved_in(broken)), rows);
  const RankRun rest = run_mesh(job(20, saved_in(broken)), rows, RunStart::Resume);
  EXPECT_EQ(rest.losses, std::vector<float>(whole.losses.begin() + 10, whole.losses.end()));
  EXPECT_EQ(stored_values(broken.path()), stored_values(unbroken.path()));
}

TEST(TensorCheckpointTest, WhatTheLeaderCannotTakeEndsAllRanks) {
  const auto rows = kMlp.rows();
  TempDir directory;
  run_mesh(job_with(job_text(kMlp, 10), in_mesh(1, 2) + saved_in(directory)), rows);
  Case other = kMlp;
  other.model = "name: 'mlp' hidden: 16 hidden: 12 hidden: 16 classes: 4";
  for (const RankRun& run : run_ranks(job_with(job_text(other, 20), in_mesh(1, 2) + saved_in(directory)), 2,
                                      rows, RunStart::Resume))
    EXPECT_THAT(run.error, HasSubstr("'mlp/layer2/kernel' is float32[12, 8], the model has float32[12, 16]"));
}

}  // namespace
}  // namespace braid::worker
