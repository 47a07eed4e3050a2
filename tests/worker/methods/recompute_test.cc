// Activations that are computed again: the same bits, in less memory.
#include "worker/step/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/compile/compile.h"
#include "engine/program/program.h"
#include "tests/support/message_of.h"
#include "tests/worker/methods/ranks.h"
#include "tests/worker/methods/relu_net.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRows = 512, kWidth = 64, kLayers = 16;

StepEstimate estimate(const TrainingGraph& made) {
  TrainingGraph step = made;
  for (const VariableGradient& gradient : step.gradients) add_update(step, gradient, {});
  CompileRequest request;
  request.feeds = {{"x", DType::Float32, Shape{kRows, kWidth}}};
  request.fetches = {step.graph.value_name(step.loss)};
  request.targets = step.targets;
  CompileOptions options;
  options.verify = true;
  const auto program = compile(step.graph, request, options);
  StepEstimate found{program->stats.arena_bytes, 0};
  for (const ProgramOp& op : program->ops) found.cost_us += op.cost_us;
  return found;
}

TEST(RecomputeTest, PartsOfTheNetNeedLessMemoryAndMoreWork) {
  TrainingGraph plain = relu_net(kWidth, kLayers), in_parts = plain;
  std::int64_t copies = 0;
  {
    RecomputedParts parts;
    for (const auto& [id, part] : parts_by_name(in_parts, {"layer([0-9]+)/.*"})) parts[id] = part;
    // Four layers are a part.
    std::map<std::int64_t, std::int64_t> number;
    for (const auto& [id, part] : parts) number.try_emplace(part, static_cast<std::int64_t>(number.size()));
    for (auto& [id, part] : parts) part = number.at(part) / 4;
    copies = recompute(in_parts, parts);
  }
  EXPECT_GT(copies, 0);
  const StepEstimate before = estimate(plain), after = estimate(in_parts);
  EXPECT_LT(after.bytes, before.bytes * 6 / 10);
  EXPECT_GT(after.cost_us, before.cost_us);
}

TEST(RecomputeTest, TheCheapestThatFitsIsChosen) {
  const TrainingGraph plain = relu_net(kWidth, kLayers);
  const StepEstimate before = estimate(plain);
  EXPECT_TRUE(parts_that_fit(plain, before.bytes, estimate).parts.empty());
  double cost = before.cost_us;
  std::uint64_t bytes = before.bytes;
  for (const std::uint64_t percent : {80U, 60U, 50U}) {
    const std::uint64_t limit = before.bytes * percent / 100;
    TrainingGraph chosen = plain;
    recompute(chosen, parts_that_fit(plain, limit, estimate).parts);
    const StepEstimate found = estimate(chosen);
    EXPECT_LE(found.bytes, limit);
    EXPECT_LE(found.bytes, bytes);
    EXPECT_GE(found.cost_us, cost) << "less memory is no cheaper";
    cost = found.cost_us;
    bytes = found.bytes;
  }
  EXPECT_THAT(message_of([&] { parts_that_fit(plain, 1000, estimate); }), HasSubstr("a step takes"));
}

TEST(RecomputeTest, PatternsAreChecked) {
  const TrainingGraph plain = relu_net(kWidth, kLayers);
  EXPECT_THAT(message_of([&] { parts_by_name(plain, {"layer("}); }), HasSubstr("no regular expression"));
  EXPECT_THAT(message_of([&] { parts_by_name(plain, {"nowhere/.*"}); }), HasSubstr("fits no node"));
}

TEST(RecomputeTest, ARunHasTheBitsOfTheRunWithout) {
  const auto rows = made_rows(48);
  for (const int world : {1, 2}) {
    const auto run = [&](std::vector<std::string> set) {
      set.insert(set.end(), {"strategy.kind=ALLREDUCE", "model.hidden=16,16,16,8"});
      return run_leader(job_with(wide_deep_job(12), set), world, rows);
    };
    const RankRun plain = run({});
    expect_equal(run({"runtime.recompute.scope=deep/.*"}), plain);
    expect_equal(run({"runtime.recompute.scope=deep/(mlp/[a-z]*[0-9])/.*"}), plain);
    expect_equal(run({"runtime.recompute.scope=deep/.*", "optimizer.accumulate_steps=3"}),
                 run({"optimizer.accumulate_steps=3"}));
  }
}

}  // namespace
}  // namespace braid::worker
