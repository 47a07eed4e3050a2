// AUTO by measurement: what it finds, what it leaves alone, and that its decision can be kept.
#include "engine/exec/tune.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "engine/compile/compile.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/trace.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

AttrMap taking_us(std::int64_t us) { return {{"us", us}}; }

CompileOptions auto_on(int streams) {
  CompileOptions options;
  options.streams.count = streams;
  return options;
}

StreamPlan tune(const TestGraph& g, const CompileRequest& request, int streams, TuneOptions options = {}) {
  options.budget = std::chrono::milliseconds(300);
  Runtime job({});
  const StreamPlan plan = tune_streams(g.graph, request, auto_on(streams), {}, job, options);
  EXPECT_TRUE(job.variables().names().empty()) << "the job's variables are not touched";
  EXPECT_TRUE(job.activity().streams.empty()) << "nor are its streams";
  return plan;
}

/// `branches` chains of five nodes that sleep: they overlap on any number of cores.
TestGraph sleepers(int branches, std::int64_t node_us) {
  TestGraph g;
  std::vector<ValueRef> ends;
  for (int b = 0; b < branches; ++b) {
    std::vector<ValueRef> chain;
    for (int i = 0; i < 5; ++i) chain = {g.add("test.Sleep", chain, taking_us(node_us))};
    ends.push_back(chain[0]);
  }
  g.mix(ends, 1, "end");
  return g;
}

TEST(TuneTest, TheFastestPlanWinsUnlessOneThatIsAsFastTakesMuchLessMemory) {
  const TuneOptions tune{.worthwhile_gain = 0.02, .as_fast = 0.01, .smaller = 0.95};
  const auto chosen = [&](std::vector<double> ratios, std::vector<std::uint64_t> arenas) {
    return choose_plan(ratios, arenas, tune);
  };
  EXPECT_EQ(chosen({1}, {100}), 0U);
  EXPECT_EQ(chosen({1, 0.985, 0.99}, {100, 100, 100}), 0U) << "not worth it";
  EXPECT_EQ(chosen({1, 0.8, 0.7}, {100, 100, 200}), 2U);
  EXPECT_EQ(chosen({1, 0.8, 0.805, 0.802}, {100, 130, 110, 120}), 2U) << "the smallest of those as fast";
  EXPECT_EQ(chosen({1, 0.8, 0.805}, {100, 104, 100}), 1U) << "hardly smaller";
  EXPECT_EQ(chosen({1, 0.8, 0.81}, {100, 130, 100}), 1U) << "not as fast";
  EXPECT_EQ(chosen({1, 0.975, 0.982}, {100, 130, 100}), 1U) << "not worth it by itself";
}

TEST(TuneTest, S8_IndependentBranchesGetStreams) {
  in_some_attempt([] {
    const StreamPlan plan = tune(sleepers(2, 3000), {{}, {"end"}, {}}, 2);
    EXPECT_TRUE(plan.policy == StreamPolicy::Cost || plan.policy == StreamPolicy::Full) << plan.why;
    EXPECT_EQ(plan.streams, 2);
    EXPECT_NE(plan.why.find("medians of a step in"), std::string::npos) << plan.why;
    EXPECT_GE(plan.costs.at("Sleep"), 3000);
    EXPECT_EQ(plan.costs.size(), 11U);
  });
}

/// Some hundred steps are too many where one takes a fifth of a second.
TEST(TuneTest, LongStepsAreNotMeasured) {
  const auto begin = std::chrono::steady_clock::now();
  const StreamPlan plan = tune(sleepers(2, 25'000), {{}, {"end"}, {}}, 2);
  EXPECT_NE(plan.why.find("a step takes 0."), std::string::npos) << plan.why;
  EXPECT_TRUE(plan.costs.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(TuneTest, S8_AChainStaysSerial) {
  const StreamPlan plan = tune(sleepers(1, 500), {{}, {"end"}, {}}, 4);
  EXPECT_EQ(plan.policy, StreamPolicy::None);
  EXPECT_EQ(plan.streams, 1);
  EXPECT_NE(plan.why.find("no other policy gives another program"), std::string::npos) << plan.why;
}

TEST(TuneTest, S8_MeasuredCostsBeatModelledOnes) {
  // Ops that claim to take long and do not: by the model streams pay, measured they do not.
  TestGraph g;
  std::vector<ValueRef> ends;
  for (int b = 0; b < 4; ++b) ends.push_back(g.add("test.Nop", {}, taking_us(500)));
  g.add("test.Nop", ends, taking_us(1), "end");
  const CompileRequest request{{}, {"end"}, {}};
  EXPECT_NE(compile(g.graph, request, auto_on(4))->policy, StreamPolicy::None);
  in_some_attempt([&] { EXPECT_EQ(tune(g, request, 4).policy, StreamPolicy::None); });
}

TEST(TuneTest, S9_OpsThatNeedOtherProcessesAreNotRun) {
  TestGraph g;  // test.Never would never complete
  const ValueRef pulled = g.add("test.Never", {}, taking_us(200), "pull");
  g.mix({pulled, g.add("test.Sleep", {}, taking_us(5000)), g.add("test.Sleep", {}, taking_us(5000))}, 1,
        "end");
  in_some_attempt([&] {
    const StreamPlan plan = tune(g, {{}, {"end"}, {}}, 2);
    EXPECT_NE(plan.policy, StreamPolicy::None) << plan.why;
    EXPECT_FALSE(plan.costs.contains("pull")) << "its cost stays the modelled one";
  });
}

TEST(TuneTest, WhatMayTalkToOthersOnTrialIsRunAndTimed) {
  TestGraph g;  // the modelled time of a pull of nothing is 50 us, and it takes 3000
  const ValueRef pulled = g.add("test.Pull", {}, taking_us(3000), "pull");
  g.mix({pulled, g.add("test.Sleep", {}, taking_us(300))}, 1, "end");
  const StreamPlan plan = tune(g, {{}, {"end"}, {}}, 2, {.real = {Lane::Pull}});
  ASSERT_TRUE(plan.costs.contains("pull")) << plan.why;
  EXPECT_GE(plan.costs.at("pull"), 3000);
}

TEST(TuneTest, WhatCannotBeMeasuredIsPredictedAndSaid) {
  TestGraph g = sleepers(2, 500);
  g.variable("table", 1 << 16);
  g.add("test.Gather", {{g.graph.find("table"), 0}}, {}, "rows");
  TuneOptions options;
  options.most_variable_bytes = 1 << 16;
  const StreamPlan large = tune(g, {{}, {"end", "rows"}, {}}, 2, options);
  EXPECT_NE(large.policy, StreamPolicy::None);
  EXPECT_NE(large.why.find("not measured: the variables take 0 MiB"), std::string::npos) << large.why;

  TestGraph broken = sleepers(2, 500);
  broken.add("test.Fail", {}, {{"message", std::string("no scratch data")}}, "bad");
  const StreamPlan failed = tune(broken, {{}, {"end", "bad"}, {}}, 2);
  EXPECT_NE(failed.why.find("the scratch steps failed: "), std::string::npos) << failed.why;
  EXPECT_NE(failed.why.find("no scratch data"), std::string::npos) << failed.why;
}

TEST(TuneTest, IdsOfTheUserAreKept) {
  TestGraph g = sleepers(3, 500);
  g.node({g.graph.find("Sleep"), 0}).stream = 3;
  in_some_attempt([&] {
    const StreamPlan plan = tune(g, {{}, {"end"}, {}}, 4);
    EXPECT_EQ(plan.streams, 4);
    CompileOptions options = auto_on(4);
    options.streams = plan.apply(options.streams);
    const auto program = compile(g.graph, {{}, {"end"}, {}}, options);
    for (const ProgramOp& op : program->ops) {
      if (op.name == "Sleep") {
        EXPECT_EQ(op.stream, 3);
      }
    }
  });
}

TEST(TuneTest, IdsThatStandInTheWayAreGivenUpAndThePlanSaysSo) {
  TestGraph g = sleepers(4, 500);
  for (NodeId id = 0; id < g.graph.size(); ++id)
    if (g.graph.node(id).name.starts_with("Sleep")) g.node({id, 0}).stream = 1;
  const CompileRequest request{{}, {"end"}, {}};
  in_some_attempt([&] {
    const StreamPlan plan = tune(g, request, 4);
    EXPECT_TRUE(plan.without_ids) << plan.why;
    EXPECT_NE(plan.why.find(" without ids: medians"), std::string::npos) << plan.why;
    const StreamPlan kept = StreamPlan::from_text(plan.to_text(), "plan");
    CompileOptions first = auto_on(4), second = auto_on(4);
    first.streams = plan.apply(first.streams);
    second.streams = kept.apply(second.streams);
    const auto program = compile(g.graph, request, first);
    std::set<int> used;
    for (const ProgramOp& op : program->ops) used.insert(op.stream);
    EXPECT_GE(used.size(), 2U);
    EXPECT_EQ(plan_hash(*program), plan_hash(*compile(g.graph, request, second)));
  });
}

TEST(TuneTest, AKeptPlanGivesTheSameProgram) {
  const TestGraph g = sleepers(3, 300);
  const CompileRequest request{{}, {"end"}, {}};
  const StreamPlan plan = tune(g, request, 3);
  const StreamPlan kept = StreamPlan::from_text(plan.to_text(), "plan");
  EXPECT_EQ(kept.to_text(), plan.to_text());
  EXPECT_EQ(kept.made_for, stream_plan_key(g.graph, request, auto_on(3)));
  CompileOptions first = auto_on(3), second = auto_on(3);
  first.streams = plan.apply(first.streams);
  second.streams = kept.apply(second.streams);
  EXPECT_EQ(plan_hash(*compile(g.graph, request, first)), plan_hash(*compile(g.graph, request, second)));
  EXPECT_NE(kept.made_for, stream_plan_key(g.graph, request, auto_on(2)));
  EXPECT_NE(kept.made_for, stream_plan_key(sleepers(2, 300).graph, request, auto_on(3)));
  CompileOptions of_halves = auto_on(3);
  of_halves.precision.half = DType::BFloat16;
  EXPECT_NE(kept.made_for, stream_plan_key(g.graph, request, of_halves));
}

TEST(TuneTest, ABrokenPlanIsRefusedWithItsLine) {
  const auto refusal = [](std::string_view text) {
    return message_of([&] { StreamPlan::from_text(text, "p"); });
  };
  EXPECT_EQ(refusal("x"), "p:1: not a stream plan of this version");
  EXPECT_EQ(refusal("braid stream plan 1\npolicy AUTO\n"),
            "p:2: 'AUTO' is not a policy that a plan can have");
  EXPECT_EQ(refusal("braid stream plan 1\nstreams x\n"), "p:2: 'x' is not a number");
  EXPECT_EQ(refusal("braid stream plan 1\nwhat\n"), "p:2: 'what' is not a line of a stream plan");
  EXPECT_EQ(refusal("braid stream plan 1\nstreams 2\n"), "p: the stream plan is not complete");
}

}  // namespace
}  // namespace braid::testing
