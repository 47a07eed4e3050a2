// Activations and states that are on the host while a step does not need them: the same bits, less memory of
// the device.
#include "worker/step/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/assumed_kernels.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/methods/ranks.h"
#include "tests/worker/methods/relu_net.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTallRows = 4096, kWideLayer = 2048, kTallLayers = 16;
constexpr std::uint64_t kActivation = kTallRows * kWideLayer * sizeof(float);

TrainingGraph tall_net() { return relu_net(kWideLayer, kTallLayers); }

std::shared_ptr<const Program> compiled(const TrainingGraph& made, Domain domain, OffloadOptions offload = {},
                                        bool states = false) {
  TrainingGraph step = made;
  for (const VariableGradient& gradient : step.gradients)
    add_update(step, gradient, {.kind = OptimizerKind::Momentum});
  if (states) offload_states(step);
  CompileRequest request;
  request.feeds = {{"x", DType::Float32, Shape{kTallRows, kWideLayer}}};
  request.fetches = {step.graph.value_name(step.loss)};
  request.targets = step.targets;
  CompileOptions options;
  options.verify = true;
  options.domain = domain;
  options.offload = std::move(offload);
  return compile(step.graph, request, options);
}

int count_of(const Program& program, const std::string& op) {
  return static_cast<int>(std::ranges::count(program.ops, op, &ProgramOp::op));
}

TEST(OffloadTest, ActivationsLeaveTheDeviceUntilTheyAreNeeded) {
  testing::assume_cuda_kernels();
  const TrainingGraph plain = tall_net();
  const auto before = compiled(plain, Domain::Device), after = compiled(plain, Domain::Device, {.share = 1});
  EXPECT_GE(before->stats.device_arena_bytes, kTallLayers * kActivation);
  EXPECT_LE(after->stats.device_arena_bytes, before->stats.device_arena_bytes / 2);
  const int copies = count_of(*after, "braid.DeviceToHost");
  EXPECT_GE(copies, kTallLayers - 4) << "the last ones are needed at once";
  EXPECT_LT(copies, kTallLayers) << "and stay";
  EXPECT_EQ(count_of(*after, "braid.HostToDevice"), copies);
  EXPECT_GE(after->stats.arena_bytes, static_cast<std::uint64_t>(copies) * kActivation)
      << "the host has them";
  EXPECT_EQ(before->ops.size() + 2 * static_cast<std::size_t>(copies), after->ops.size())
      << "all other nodes are those without";
  std::set<Lane> lanes;
  for (const ProgramStream& stream : after->streams) lanes.insert(stream.lane);
  EXPECT_TRUE(lanes.contains(Lane::HostToDevice));
  EXPECT_TRUE(lanes.contains(Lane::DeviceToHost));
  EXPECT_GT(count_of(*compiled(plain, Domain::Host, {.share = 1}), "braid.HostToDevice"), 0)
      << "plain copies";
}

TEST(OffloadTest, TheCheapestThatFitsIsChosen) {
  testing::assume_cuda_kernels();
  const TrainingGraph plain = tall_net();
  const auto estimate = [&](double share) {
    const auto program = compiled(plain, Domain::Device, {.share = share});
    return StepEstimate{program->stats.device_arena_bytes, program->stats.step_us};
  };
  const StepEstimate before = estimate(0);
  EXPECT_EQ(share_that_fits(before.bytes, estimate).share, 0);
  double share = 0;
  for (const std::uint64_t percent : {85U, 65U, 50U}) {
    const OffloadChoice choice = share_that_fits(before.bytes * percent / 100, estimate);
    EXPECT_LE(estimate(choice.share).bytes, before.bytes * percent / 100);
    EXPECT_GT(choice.share, share) << "less memory takes more copies";
    share = choice.share;
  }
  EXPECT_THAT(message_of([&] { share_that_fits(1000, estimate); }), HasSubstr("a step takes"));
}

TEST(OffloadTest, PatternsChoose) {
  testing::assume_cuda_kernels();
  const TrainingGraph plain = tall_net();
  const auto with = [&](const char* pattern) {
    return compiled(plain, Domain::Device, {.scope = {pattern}});
  };
  EXPECT_THAT(message_of([&] { with("layer("); }), HasSubstr("no regular expression"));
  EXPECT_THAT(message_of([&] { with("nowhere/.*"); }), HasSubstr("fits no value"));
  EXPECT_EQ(count_of(*with("layer[0-7]/.*"), "braid.DeviceToHost"), 8);
}

/// A value that is read through views is brought back once, and viewed again.
TEST(OffloadTest, ViewsAreMadeAgainOfWhatIsBack) {
  testing::assume_cuda_kernels();
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, Shape{-1, kWideLayer});
  for (std::int64_t l = 0; l < 8; ++l)
    x = b.reshape(b.reshape(b.dense("layer" + std::to_string(l), x, kWideLayer, kWideLayer, true),
                            {-1, 2, kWideLayer / 2}),
                  {-1, kWideLayer});
  const TrainingGraph training = make_training_graph(b.graph(), b.reduce_mean(b.mul(x, x)).name());
  const auto before = compiled(training, Domain::Device),
             after = compiled(training, Domain::Device, {.share = 1});
  EXPECT_GE(count_of(*after, "braid.HostToDevice"), 4);
  EXPECT_LT(after->stats.device_arena_bytes, before->stats.device_arena_bytes * 8 / 10);
}

TEST(OffloadTest, StatesAreVariablesOfTheHost) {
  testing::assume_cuda_kernels();
  const auto program = compiled(tall_net(), Domain::Device, {}, true);
  int slots = 0;
  for (const ProgramVariable& variable : program->variables) {
    const bool is_slot = variable.name.ends_with("kernel/momentum");
    slots += is_slot;
    EXPECT_EQ(program->buffers[static_cast<std::size_t>(variable.buffer)].domain,
              is_slot ? Domain::Host : Domain::Device)
        << variable.name;
  }
  EXPECT_EQ(slots, kTallLayers);
}

TEST(OffloadTest, ARunHasTheBitsOfTheRunWithout) {
  const auto rows = made_rows(768);
  for (const int world : {1, 2}) {
    const auto run = [&](std::vector<std::string> set) {
      set.insert(set.end(),
                 {"strategy.kind=ALLREDUCE", "model.hidden=128,128,128", "input.global_batch_size=512"});
      return run_leader(job_with(wide_deep_job(6), set), world, rows);
    };
    const RankRun plain = run({});
    expect_equal(run({"runtime.offload.scope=deep/.*"}), plain);
    expect_equal(run({"runtime.offload.optimizer_states=true"}), plain);
    expect_equal(run({"runtime.offload.scope=deep/.*", "runtime.offload.optimizer_states=true",
                      "runtime.recompute.scope=deep/(mlp/[a-z]*[0-9])/.*"}),
                 plain);
    expect_equal(run({"runtime.offload.scope=deep/.*", "optimizer.accumulate_steps=2"}),
                 run({"optimizer.accumulate_steps=2"}));
  }
}

TEST(OffloadTest, WorkersOfAllStrategiesHaveTheBitsOfTheRunWithout) {
  const auto rows = made_rows(768);
  const std::vector<std::vector<std::string>> strategies{
      {"strategy.kind=MIRRORED"},
      {"strategy.kind=HYBRID", "streams.measure=false"},  // with measured plans two runs may differ
      {"strategy.kind=TENSOR", "strategy.mesh.tensor=2"},
      {"strategy.kind=ALLREDUCE", "strategy.shard=PARAMETERS"},
      {"strategy.kind=PIPELINE", "strategy.pipeline.micro_batches=2"}};
  for (const std::vector<std::string>& strategy : strategies) {
    SCOPED_TRACE(strategy[0]);
    const auto run = [&](std::vector<std::string> set) {
      set.insert(set.end(), strategy.begin(), strategy.end());
      set.insert(set.end(), {"model.hidden=128,128,128", "input.global_batch_size=512"});
      return run_leader(job_with(wide_deep_job(6), set), 2, rows);
    };
    expect_equal(run({"runtime.offload.scope=deep/.*"}), run({}));
  }
}

TEST(OffloadTest, CheckpointsAreThoseOfTheRunWithout) {
  const auto rows = made_rows(96);
  TempDir directory;
  const std::vector<std::string> plain{"model.hidden=128,128",
                                       "checkpoint.directory=" + directory.path().string(),
                                       "checkpoint.every_steps=4"};
  std::vector<std::string> away = plain;
  away.push_back("runtime.offload.optimizer_states=true");
  const RankRun whole = run_leader(job_with(wide_deep_job(8), {"model.hidden=128,128"}), 1, rows);
  run_leader(job_with(wide_deep_job(4), away), 1, rows);
  RankRun rest = run_leader(job_with(wide_deep_job(8), plain), 1, rows, RunStart::Resume);
  RankRun expected = whole;
  expected.losses.erase(expected.losses.begin(), expected.losses.begin() + 4);
  expect_equal(rest, expected);
}

TEST(OffloadTest, RefusesWhatCutsTheGraphOrChoosesTwice) {
  const auto refusal = [](std::vector<std::string> set) {
    return message_of([&] { job_with(wide_deep_job(4), set); });
  };
  EXPECT_THAT(refusal({"runtime.offload.scope=x", "runtime.offload.memory_bytes=5"}), HasSubstr("both set"));
  EXPECT_THAT(refusal({"runtime.recompute.memory_bytes=5", "runtime.offload.memory_bytes=5"}),
              HasSubstr("either chooses"));
  EXPECT_THAT(refusal({"runtime.offload.optimizer_states=true", "strategy.kind=PIPELINE",
                       "strategy.pipeline.micro_batches=2"}),
              HasSubstr("does not go with strategy.kind PIPELINE"));
  EXPECT_THAT(refusal({"runtime.offload.optimizer_states=true", "strategy.kind=ALLREDUCE",
                       "strategy.shard=OPTIMIZER"}),
              HasSubstr("does not go with strategy.shard"));
}

}  // namespace
}  // namespace braid::worker
