// Experts that are spread over ranks that are threads, against the run of one process: a sparse mixture of
// the zoo, graphs that nobody has made for it, methods, checkpoints, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checkpoint_values.h"
#include "models/common.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/strategies/model_rows.h"
#include "tests/worker/strategies/tensor_runs.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Settings in_experts(int data, int experts) {
  return {"strategy.kind=EXPERTS", "strategy.mesh.data=" + std::to_string(data),
          "strategy.mesh.experts=" + std::to_string(experts)};
}

std::string mixture_job(const std::string& mixture, int steps,
                        const std::string& optimizer = "kind: MOMENTUM learning_rate: 0.02",
                        const std::string& more = "") {
  return pipeline_job(
      "name: 'transformer' hidden: 8 hidden: 16 embedding_dim: 8 classes: 3 hash_buckets: 12 " + more +
          " mixture { " + mixture + " }",
      steps, optimizer);
}

RankRun run_experts(const proto::Job& job, const std::shared_ptr<const Table>& rows,
                    RunStart start = RunStart::New) {
  const auto& mesh = job.strategy().mesh();
  const auto runs = run_ranks(job, static_cast<int>(mesh.data() * mesh.experts()), rows, start);
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(run.losses, runs[0].losses);
  }
  return runs[0];
}

void expect_as_one_process(const std::string& job, const std::shared_ptr<const Table>& rows, int data,
                           int experts, const Settings& settings = {}, const Settings& of_one = {}) {
  SCOPED_TRACE(std::to_string(data) + " groups of " + std::to_string(experts));
  const RankRun local = run_leader(job_with(job, settings + of_one), 1, rows);
  const RankRun spread = run_experts(job_with(job, in_experts(data, experts) + settings), rows);
  ASSERT_EQ(spread.losses.size(), local.losses.size());
  for (std::size_t i = 0; i < local.losses.size(); ++i)
    EXPECT_NEAR(spread.losses[i], local.losses[i], 1e-6 * std::max(1.0F, local.losses[i])) << "step " << i;
  int compared = 0;
  for (const auto& [name, values] : local.values) {
    const auto other = spread.values.find(name);
    if (other == spread.values.end()) continue;  // a slot of a slice
    ++compared;
    ASSERT_EQ(values.size(), other->second.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(other->second[i], values[i], 1e-5) << name;
  }
  EXPECT_GT(compared, 0);
}

const std::vector<std::pair<int, int>> kMeshes{{1, 2}, {1, 4}, {2, 2}, {2, 1}};

void expect_as_one_process(const std::string& job, const std::shared_ptr<const Table>& rows,
                           const Settings& settings = {}) {
  for (const auto& [data, experts] : kMeshes) expect_as_one_process(job, rows, data, experts, settings);
}

TEST(ExpertsTest, TwoChoicesOfFourExperts) {
  // At MOMENTUM's rate a unit of this model comes so near to the kink of its ReLU that one process has two
  // results, 8e-5 apart, on two machines.
  expect_as_one_process(mixture_job("experts: 4 choices: 2 groups: 4", 20, "kind: SGD learning_rate: 0.05"),
                        made_sequences(48));
}

TEST(ExpertsTest, OneChoiceAndFullExperts) {
  expect_as_one_process(mixture_job("experts: 4 choices: 1 groups: 4 capacity_factor: 0.6 balance: 0.1", 20),
                        made_sequences(48));
}

TEST(ExpertsTest, EightExpertsWithoutACapacity) {
  expect_as_one_process(mixture_job("experts: 8 choices: 3 groups: 4 capacity_factor: 0", 20,
                                    "kind: SGD learning_rate: 0.05", "sparse_tables: true"),
                        made_sequences(48));
}

/// The group of a worker's tokens has a capacity of its own, as groups of one process have.
TEST(ExpertsTest, WorkersAreGroupsOfTokens) {
  const std::string job = mixture_job("experts: 4 choices: 2 capacity_factor: 0.7", 20);
  expect_as_one_process(job, made_sequences(48), 1, 2, {}, {"model.mixture.groups=2"});
  expect_as_one_process(job, made_sequences(48), 2, 2, {}, {"model.mixture.groups=4"});
}

TEST(ExpertsTest, AGroupOfOneHasTheBitsOfOneProcess) {
  const std::string job = mixture_job("experts: 4 choices: 2", 10);
  expect_equal(run_experts(job_with(job, in_experts(1, 1)), made_sequences(48)),
               run_leader(job_with(job, {}), 1, made_sequences(48)));
}

TEST(ExpertsTest, WithOtherMethods) {
  const std::string job = mixture_job("experts: 4 choices: 2 groups: 4", 12);
  const auto rows = made_sequences(48);
  for (const Settings& settings :
       {Settings{"optimizer.clip_norm=0.05"}, Settings{"strategy.bucket_bytes=256"},
        Settings{"optimizer.kind=ADAGRAD"}, Settings{"streams.count=4", "streams.policy=AUTO"},
        Settings{"runtime.recompute.scope=(.*layer[0-9]+)/.*"}, Settings{"runtime.steps_in_flight=2"}})
    for (const auto& [data, experts] : {std::pair(1, 2), {2, 2}}) {
      SCOPED_TRACE(settings[0]);
      expect_as_one_process(job, rows, data, experts, settings);
    }
}

TEST(ExpertsTest, ThePlanSaysWhereExpertsLie) {
  const proto::Job job = job_with(mixture_job("experts: 4 choices: 2 groups: 4", 1), in_experts(2, 2));
  EXPECT_THAT(
      plan_text(job, 4, *made_sequences(48)),
      AllOf(HasSubstr("experts: 2 groups of 2 workers, 8 variables spread"),
            HasSubstr("layer0/experts/inner/kernel [4, 8, 8] -> [2, 8, 8]"),
            HasSubstr("layer1/experts/outer/bias [4, 1, 8] -> [2, 1, 8]"),
            HasSubstr("layer0/experts/route: 4 experts; 36 tokens of a worker in 1 group, 2 choices each; "
                      "capacity of an expert 23 of a group"),
            HasSubstr("forward: 4 all-to-alls"), HasSubstr("backward: 4 all-to-alls"),
            HasSubstr("between groups"), Not(HasSubstr("gathers")), Not(HasSubstr("sums of slices"))));
}

// --------------------------------------------------------------------------------------------------
// checkpoints

Settings saved_in(const TempDir& directory) {
  return {"checkpoint.every_steps=10", "checkpoint.directory=" + directory.path().string()};
}

std::map<std::string, std::vector<std::byte>> stored_values(const std::filesystem::path& directory) {
  const CheckpointValues values(*CheckpointStore(directory).newest());
  std::map<std::string, std::vector<std::byte>> all;
  for (const auto& [name, info] : values.values()) all[name] = values.read(name);
  return all;
}

TEST(ExpertsCheckpointTest, AnyMeshAndOneProcessGoOn) {
  const auto rows = made_sequences(48);
  const auto text = [](int steps) { return mixture_job("experts: 4 choices: 2 groups: 4", steps); };
  const RankRun whole = run_leader(job_with(text(20), {}), 1, rows);
  const auto meshes = {std::pair(1, 1), {1, 2}, {1, 4}, {2, 2}};
  for (const auto& [data, experts] : meshes)
    for (const auto& [next_data, next_experts] : meshes) {
      SCOPED_TRACE(std::to_string(data) + "x" + std::to_string(experts) + ", then " +
                   std::to_string(next_data) + "x" + std::to_string(next_experts));
      TempDir directory;
      run_experts(job_with(text(10), in_experts(data, experts) + saved_in(directory)), rows);
      const RankRun rest =
          run_experts(job_with(text(20), in_experts(next_data, next_experts) + saved_in(directory)), rows,
                      RunStart::Resume);
      ASSERT_EQ(rest.losses.size(), 10u);
      for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(rest.losses[i], whole.losses[10 + i], 1e-6);
    }
}

TEST(ExpertsCheckpointTest, ACheckpointIsThatOfOneProcess) {
  const auto rows = made_sequences(48);
  const std::string text = mixture_job("experts: 4 choices: 2 groups: 4", 10);
  TempDir of_one, of_many;
  run_leader(job_with(text, saved_in(of_one)), 1, rows);
  run_experts(job_with(text, in_experts(2, 2) + saved_in(of_many)), rows);
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

TEST(ExpertsCheckpointTest, TheSameMeshGoesOnWithTheSameBits) {
  const auto rows = made_sequences(48);
  const auto job = [&](int steps, const Settings& settings) {
    return job_with(mixture_job("experts: 4 choices: 2 groups: 4", steps), in_experts(2, 2) + settings);
  };
  TempDir unbroken, broken;
  const RankRun whole = run_experts(job(20, saved_in(unbroken)), rows);
  run_experts(job(10, saved_in(broken)), rows);
  const RankRun rest = run_experts(job(20, saved_in(broken)), rows, RunStart::Resume);
  EXPECT_EQ(rest.losses, std::vector<float>(whole.losses.begin() + 10, whole.losses.end()));
  EXPECT_EQ(stored_values(broken.path()), stored_values(unbroken.path()));
}

// -------------------------------------------------------------------------------------------------------
// graphs

Output weights(GraphBuilder& b, const char* name, Shape shape) {
  return b.read(b.variable(name, std::move(shape), {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
}

/// Gates [T, 4] of x [T, 8], 0 but for the largest of a token, as graphs write it that have no op for it.
Output best_gates(GraphBuilder& b, const Output& x) {
  const Output gates = b.op("Softmax", {b.matmul(x, weights(b, "gate", {8, 4}))});
  const Output best = b.op("ArgMax", {gates, b.constant(Tensor::scalar<std::int32_t>(1), "axis")});
  const Output mask =
      b.op("OneHot", {best, b.constant(Tensor::scalar<std::int32_t>(4), "depth"),
                      b.constant(Tensor::scalar(1.0F), "on"), b.constant(Tensor::scalar(0.0F), "off")});
  return b.mul(gates, mask);
}

/// Every expert has a row for every token, as einsums over masks make it.
Output einsum_experts(GraphBuilder& b, const Output& x) {
  const Output gates = best_gates(b, x);
  const Output sent = b.op("Einsum", {gates, x}, {{"equation", "te,td->etd"}}, "sent");
  Output inner = b.op("Einsum", {sent, weights(b, "up", {4, 8, 6})}, {{"equation", "etd,edh->eth"}}, "inner");
  const Output bias =
      b.op("ExpandDims", {weights(b, "bias", {4, 6}), b.constant(Tensor::scalar<std::int32_t>(1), "middle")});
  inner = b.op("Tanh", {b.add(inner, bias)});
  const Output outer =
      b.op("Einsum", {inner, weights(b, "down", {6, 4, 8})}, {{"equation", "eth,hed->etd"}}, "outer");
  return b.op("Einsum", {gates, outer}, {{"equation", "te,etd->td"}}, "back");
}

TEST(ExpertsGraphsTest, EinsumsOverMasks) {
  GraphJob job;
  const std::string text = job.text(einsum_experts(job.b, job.x), 20);
  EXPECT_THAT(plan_text(job_with(text, in_experts(1, 2)), 2, *made_vectors(48)),
              AllOf(HasSubstr("2 variables spread"), HasSubstr("up [4, 8, 6] -> [2, 8, 6]"),
                    HasSubstr("down [6, 4, 8] -> [6, 2, 8]"), HasSubstr("forward: 2 all-to-alls"),
                    HasSubstr("1 gathers")))
      << "the bias, which another node gives its axes, stays whole";
  expect_as_one_process(text, made_vectors(48));
}

/// A product alone, whose weights' gradient is of what was sent.
TEST(ExpertsGraphsTest, OneLayerByAPattern) {
  GraphJob job;
  GraphBuilder& b = job.b;
  const Output gates = best_gates(b, job.x);
  const Output sent = b.op("Einsum", {gates, job.x}, {{"equation", "te,td->etd"}}, "sent");
  const Output made = b.op("BatchMatMulV2", {sent, weights(b, "mixed/up", {4, 8, 6})});
  const Output loose = b.op("BatchMatMulV2", {sent, weights(b, "other/up", {4, 8, 6})});
  const Output back = b.op("Einsum", {gates, b.add(made, loose)}, {{"equation", "te,etd->td"}}, "back");
  const std::string text = job.text(back, 20);
  const Settings matched{"strategy.experts.match=mixed/.*", "strategy.experts.automatic=false"};
  EXPECT_THAT(
      plan_text(job_with(text, in_experts(1, 2) + matched), 2, *made_vectors(48)),
      AllOf(HasSubstr("1 variables spread"), HasSubstr("mixed/up"), Not(HasSubstr("sums of slices"))));
  expect_as_one_process(text, made_vectors(48), 1, 2, matched);
  expect_as_one_process(text, made_vectors(48), 2, 2, matched);
  expect_as_one_process(text, made_vectors(48));
}

/// As programs of PyTorch and Keras have them: what to write is said with the refusal.
TEST(ExpertsGraphsTest, AVariableForEachExpertIsRefusedWithWhatToWrite) {
  GraphJob job;
  GraphBuilder& b = job.b;
  const Output gates = best_gates(b, job.x);
  const std::vector<std::string> names{"experts.0.up.weight", "experts.1.up.weight", "experts.2.up.weight",
                                       "experts.3.up.weight"};
  std::vector<Output> outputs;
  for (const std::string& name : names) outputs.push_back(b.matmul(job.x, weights(b, name.c_str(), {8, 8})));
  const Output stacked = b.op("Pack", outputs, {{"N", std::int64_t{4}}, {"axis", std::int64_t{0}}});
  const Output back = b.op("Einsum", {gates, stacked}, {{"equation", "te,etd->td"}}, "back");
  const std::string error = error_of_mesh(job_with(job.text(back, 3), in_experts(1, 2)), 2, made_vectors(48));
  EXPECT_THAT(error,
              AllOf(HasSubstr("no weights of experts"),
                    HasSubstr("'experts.0.up.weight', 'experts.1.up.weight' and so on (4 of shape [8, 8])"),
                    HasSubstr("write them as one variable of shape [4, 8, 8]")));
}

/// A penalty reads the weights as they are: its gradient is no sum over tokens.
TEST(ExpertsGraphsTest, APenaltyOnTheWeights) {
  GraphJob job;
  GraphBuilder& b = job.b;
  const Output gates = best_gates(b, job.x);
  const Output sent = b.op("Einsum", {gates, job.x}, {{"equation", "te,td->etd"}}, "sent");
  const Output up = weights(b, "up", {4, 8, 6});
  const Output back =
      b.op("Einsum", {gates, b.op("BatchMatMulV2", {sent, up})}, {{"equation", "te,etd->td"}}, "back");
  const Output penalty = b.mul(b.op("L2Loss", {up}), b.constant(Tensor::scalar(0.01F), "penalty_factor"));
  expect_as_one_process(job.text(b.add(back, penalty), 20), made_vectors(48));
}

// ------------------------------------------------------------------------------------------------------
// refused

TEST(ExpertsRefusedTest, WhatDoesNotFit) {
  const std::string job = mixture_job("experts: 4 choices: 2", 3);
  const auto rows = made_sequences(48);
  const auto error = [&](int data, int experts, const Settings& settings, const std::string& text) {
    return error_of_mesh(job_with(text, in_experts(data, experts) + settings), data * experts, rows);
  };
  EXPECT_THAT(error(1, 3, {}, job), HasSubstr("no weights of experts that are cut into 3 equal parts"));
  EXPECT_THAT(error(1, 2, {"strategy.experts.automatic=false"}, job), HasSubstr("no weights of experts"));
  EXPECT_THAT(error(1, 2, {"strategy.experts.match=layer9/.*"}, job),
              HasSubstr("strategy.experts.match[0] 'layer9/.*' fits no weights with an axis of experts"));
  EXPECT_THAT(error(1, 3, {"strategy.experts.match=layer0/experts/.*"}, job),
              HasSubstr("has 4 experts, which 3 workers do not share evenly"));
  EXPECT_THAT(error(1, 2, {"strategy.experts.match=("}, job), HasSubstr("strategy.experts.match[0] '('"));
  EXPECT_THAT(error(1, 2, {"input.global_batch_size=23"}, job),
              HasSubstr("a batch of 23 rows (input.global_batch_size) is not cut into 2 equal parts"));
  EXPECT_THAT(error(1, 2, {"model.mixture.groups=3"}, job),
              HasSubstr("3 groups of tokens are not shared evenly by 2 workers"));
  const std::string dense =
      pipeline_job("name: 'transformer' hidden: 8 embedding_dim: 8 classes: 3 hash_buckets: 12", 3);
  EXPECT_THAT(error(1, 2, {}, dense), HasSubstr("no weights of experts"));
}

}  // namespace
}  // namespace braid::worker
