// Who decides an op's stream, what the policies do, and that branches really overlap.
#include <gtest/gtest.h>
#include <algorithm>

#include <fstream>
#include <set>

#include "engine/compile/compile.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/trace.h"
#include "engine/program/plan.h"
#include "engine/schedule/stream_policy.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

int stream_of(const Program& program, const std::string& name) {
  for (const ProgramOp& op : program.ops)
    if (op.name == name) return op.stream;
  ADD_FAILURE() << "no op " << name;
  return -1;
}

AttrMap us(std::int64_t us) { return {{"us", us}}; }

TEST(StreamsTest, S3_TheScopesIdIsUsedAndColocationBeatsIt) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "a"), b = g.add("test.Nop", {}, {}, "b"),
                 c = g.add("test.Nop", {}, {}, "c");
  g.mix({a, b, c}, 1, "d");
  g.node(a).stream = 2;
  g.node(b).stream = 1;
  g.node(c).stream = 3;
  g.node(c).colocate_with = a.node;  // its own scope says 3
  const auto p = compile_test(g, {"d"}, {}, 4, StreamPolicy::User);
  EXPECT_EQ(stream_of(*p, "a"), 2);
  EXPECT_EQ(stream_of(*p, "b"), 1);
  EXPECT_EQ(stream_of(*p, "c"), 2);
  EXPECT_EQ(stream_of(*p, "d"), 0) << "USER leaves the rest on stream 0";
}

TEST(StreamsTest, S3_AColocationGroupAdoptsItsOnlyId) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "a"), b = g.add("test.Nop", {}, {}, "b"),
                 c = g.add("test.Nop", {}, {}, "c");
  g.node(b).colocate_with = g.node(c).colocate_with = a.node;
  g.node(c).stream = 2;
  g.mix({a, b, c}, 1, "d");
  const auto p = compile_test(g, {"d"}, {}, 4, StreamPolicy::User);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(stream_of(*p, name), 2) << name;
}

TEST(StreamsTest, S3_TwoIdsInOneGroupAreRefusedByName) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "a"), b = g.add("test.Nop", {}, {}, "b"),
                 c = g.add("test.Nop", {}, {}, "c");
  g.node(b).colocate_with = g.node(c).colocate_with = a.node;
  g.node(b).stream = 1;
  g.node(c).stream = 2;
  g.mix({a, b, c}, 1, "d");
  EXPECT_EQ(message_of([&] { compile_test(g, {"d"}, {}, 4, StreamPolicy::User); }),
            "[test.Nop] node 'b' is on stream 1 and [test.Nop] node 'c' on stream 2, but they are colocated");
}

TEST(StreamsTest, S3_AGroupWithoutAnIdStaysTogetherUnderEveryPolicy) {
  for (const auto policy : {StreamPolicy::Cost, StreamPolicy::Full}) {
    TestGraph g;
    std::vector<ValueRef> branches;
    for (int i = 0; i < 4; ++i) branches.push_back(g.add("test.Nop", {}, us(100), "b" + std::to_string(i)));
    g.node(branches[3]).colocate_with = branches[1].node;
    g.mix(branches, 1, "d");
    const auto p = compile_test(g, {"d"}, {}, 4, policy);
    EXPECT_EQ(stream_of(*p, "b1"), stream_of(*p, "b3")) << stream_policy_name(policy);
    EXPECT_NE(stream_of(*p, "b0"), stream_of(*p, "b2")) << stream_policy_name(policy);
  }
}

TEST(StreamsTest, S4_AnIdOutOfRangeNamesTheNode) {
  for (const int id : {2, 7, -2}) {
    TestGraph g;
    const ValueRef a = g.add("test.Nop", {}, {}, "tower/a");
    g.node(a).stream = id;
    EXPECT_EQ(message_of([&] { compile_test(g, {"tower/a"}, {}, 2, StreamPolicy::Auto); }),
              "[test.Nop] node 'tower/a': stream " + std::to_string(id) +
                  " does not exist; the program has 2 compute streams (0 to 1)");
  }
}

TEST(StreamsTest, S4_WhatIsNotUsedIsSaid) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "a");
  const auto user = compile_test(g, {"a"}, {}, 2, StreamPolicy::User);
  EXPECT_NE(plan_report(*user).find("USER, but no node has an id"), std::string::npos);
  g.node(a).stream = 1;
  const auto none = compile_test(g, {"a"}, {}, 2, StreamPolicy::None);
  EXPECT_EQ(stream_of(*none, "a"), 0);
  EXPECT_NE(plan_report(*none).find("stream ids on 1 node ignored"), std::string::npos);
}

TEST(StreamsTest, S5_BackwardNodesFollowTheirForwardNodeUnlessToldNotTo) {
  TestGraph g;
  const ValueRef f = g.add("test.Nop", {}, us(100), "f"), k = g.add("test.Nop", {}, us(100), "k");
  const ValueRef df = g.add("test.Nop", {f}, us(100), "df"), dk = g.add("test.Nop", {k}, us(100), "dk");
  const ValueRef ddf = g.add("test.Nop", {df}, us(100), "ddf");
  g.mix({ddf, dk}, 1, "end");
  g.node(f).stream = 2;
  g.node(k).stream = 3;
  g.node(k).include_grad = false;
  g.node(df).forward_of = f.node;
  g.node(ddf).forward_of = df.node;
  g.node(dk).forward_of = k.node;
  for (const auto policy : {StreamPolicy::User, StreamPolicy::Cost, StreamPolicy::Full, StreamPolicy::Auto}) {
    const auto p = compile_test(g, {"end"}, {}, 4, policy);
    EXPECT_EQ(stream_of(*p, "df"), 2);
    EXPECT_EQ(stream_of(*p, "ddf"), 2);
  }
  EXPECT_EQ(stream_of(*compile_test(g, {"end"}, {}, 4, StreamPolicy::User), "dk"), 0);
  CompileOptions options;
  options.streams = {4, StreamPolicy::User, false, false};
  EXPECT_EQ(stream_of(*compile(g.graph, {{}, {"end"}, {}}, options), "df"), 0);
}

TEST(StreamsTest, S5_AnUpdateIsAfterItsGradientsOnAllStreams) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  std::vector<ValueRef> gradients{w};
  for (int s = 0; s < 4; ++s) {
    gradients.push_back(g.mix({g.read(w)}, 4, "g" + std::to_string(s)));
    g.node(gradients.back()).stream = s;
  }
  const ValueRef update = g.add("test.Update", gradients, {}, "update");
  g.node(update).stream = 0;
  const auto p = compile_test(g, {}, {"update"}, 4, StreamPolicy::User);
  int waits = 0;
  for (const Instruction& i : p->streams[0].instructions) waits += i.kind == Instruction::Kind::Wait;
  EXPECT_EQ(waits, 3);
}

/// The DAG 0 -> {1, 2, 3}, 1 -> 4, 2 -> 5, {4, 5, 3} -> 6 as ops.
TestGraph seven_nodes() {
  TestGraph g;
  const ValueRef n0 = g.add("test.Nop", {}, us(10), "n0");
  const ValueRef n1 = g.add("test.Nop", {n0}, us(10), "n1"), n2 = g.add("test.Nop", {n0}, us(10), "n2");
  const ValueRef n3 = g.add("test.Nop", {n0}, us(10), "n3");
  const ValueRef n4 = g.add("test.Nop", {n1}, us(10), "n4"), n5 = g.add("test.Nop", {n2}, us(10), "n5");
  g.add("test.Nop", {n4, n5, n3}, us(10), "n6");
  return g;
}

TEST(StreamsTest, S8_FullCoversADagByItsFewestChains) {
  const auto p = compile_test(seven_nodes(), {"n6"}, {}, 3, StreamPolicy::Full);
  const int main = stream_of(*p, "n0"), second = stream_of(*p, "n2"), third = stream_of(*p, "n3");
  for (const char* name : {"n1", "n4", "n6"}) EXPECT_EQ(stream_of(*p, name), main) << name;
  EXPECT_EQ(stream_of(*p, "n5"), second);
  EXPECT_EQ(std::set<int>({main, second, third}).size(), 3U);
  EXPECT_EQ(main, 0) << "the critical path is on stream 0";
}

TEST(StreamsTest, S8_TransitiveEdgesDoNotCostAChain) {
  // 0 -> 1 -> 2 -> 3 with all shortcuts is one chain.
  TestGraph g;
  std::vector<ValueRef> n;
  for (int i = 0; i < 4; ++i) n.push_back(g.add("test.Nop", n, us(5), "n" + std::to_string(i)));
  const auto p = compile_test(g, {"n3"}, {}, 4, StreamPolicy::Full);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(stream_of(*p, "n" + std::to_string(i)), 0);
  EXPECT_EQ(p->stats.waits_issued, 0);
}

TEST(StreamsTest, S8_PoliciesAreDeterministic) {
  for (const auto policy : {StreamPolicy::User, StreamPolicy::Cost, StreamPolicy::Full, StreamPolicy::Auto,
                            StreamPolicy::Embedding}) {
    const std::uint64_t first = plan_hash(*compile_test(seven_nodes(), {"n6"}, {}, 3, policy));
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(plan_hash(*compile_test(seven_nodes(), {"n6"}, {}, 3, policy)), first);
  }
}

TEST(StreamsTest, CostBalancesBranchesByTheirCost) {
  // One long branch and three short ones on two streams: the long one alone, the short ones together.
  TestGraph g;
  std::vector<ValueRef> ends;
  const std::int64_t costs[] = {300, 100, 100, 100};
  for (int b = 0; b < 4; ++b) ends.push_back(g.add("test.Nop", {}, us(costs[b]), "b" + std::to_string(b)));
  g.add("test.Nop", ends, us(1), "end");
  const auto p = compile_test(g, {"end"}, {}, 2, StreamPolicy::Cost);
  EXPECT_EQ(stream_of(*p, "b0"), 0) << "critical";
  for (int b = 1; b < 4; ++b) EXPECT_EQ(stream_of(*p, "b" + std::to_string(b)), 1);
  EXPECT_LT(p->stats.step_us, 0.6 * p->stats.serial_us);
}

TEST(StreamsTest, AutoStaysSerialWhereStreamsDoNotPay) {
  TestGraph tiny;
  std::vector<ValueRef> ends;
  for (int b = 0; b < 4; ++b) ends.push_back(tiny.add("test.Nop", {}, us(1)));
  tiny.add("test.Nop", ends, us(1), "end");
  const auto serial = compile_test(tiny, {"end"}, {}, 4, StreamPolicy::Auto);
  EXPECT_EQ(serial->policy, StreamPolicy::None);
  EXPECT_EQ(serial->stats.waits_issued, 0);
  EXPECT_NE(plan_report(*serial).find("AUTO took NONE; predicted: NONE"), std::string::npos);

  TestGraph large;
  ends.clear();
  for (int b = 0; b < 4; ++b) ends.push_back(large.add("test.Nop", {}, us(500)));
  large.add("test.Nop", ends, us(1), "end");
  EXPECT_NE(compile_test(large, {"end"}, {}, 4, StreamPolicy::Auto)->policy, StreamPolicy::None);
}

TEST(StreamsTest, S4_AutoDoesNotUseIdsThatOnlyCostTimeAndSaysSo) {
  const auto program = [](std::int64_t node_us, StreamPolicy policy) {
    TestGraph g;
    std::vector<ValueRef> ends;
    for (int b = 0; b < 2; ++b) {
      ends.push_back(g.add("test.Nop", {}, us(node_us), "b" + std::to_string(b)));
      g.node(ends.back()).stream = b;
    }
    g.add("test.Nop", ends, us(1), "end");
    return compile_test(g, {"end"}, {}, 2, policy);
  };
  const auto tiny = program(1, StreamPolicy::Auto), large = program(500, StreamPolicy::Auto);
  EXPECT_EQ(stream_of(*tiny, "b1"), 0);
  EXPECT_LE(tiny->stats.step_us, 1.01 * tiny->stats.serial_us);
  EXPECT_NE(plan_report(*tiny).find("stream ids on 2 nodes ignored"), std::string::npos);
  EXPECT_EQ(stream_of(*large, "b1"), 1);
  EXPECT_EQ(stream_of(*program(1, StreamPolicy::User), "b1"), 1) << "who insists has them";
}

// Ids that were right for other sizes: all branches on one stream.
TEST(StreamsTest, AutoTriesTheGraphWithoutItsIdsAndIgnoredOnesMeanNothing) {
  TestGraph g;
  std::vector<ValueRef> ends;
  for (int b = 0; b < 4; ++b) {
    ends.push_back(g.add("test.Nop", {}, us(500), "b" + std::to_string(b)));
    g.node(ends.back()).stream = 1;
  }
  g.add("test.Nop", ends, us(1), "end");
  const auto program = [&](StreamPolicy policy, Scopes scopes) {
    CompileOptions options;
    options.streams.count = 4;
    options.streams.policy = policy;
    options.streams.scopes = scopes;
    return compile(g.graph, {{}, {"end"}, {}}, options);
  };
  const auto streams_used = [](const Program& p) {
    std::set<int> used;
    for (const ProgramOp& op : p.ops)
      if (op.name.starts_with("b")) used.insert(op.stream);
    return used.size();
  };
  const auto chosen = program(StreamPolicy::Auto, Scopes::Used);
  EXPECT_EQ(streams_used(*chosen), 4U);
  EXPECT_EQ(chosen->scopes, Scopes::KeptApart);
  EXPECT_NE(plan_report(*chosen).find("AUTO took COST without ids; predicted: USER "), std::string::npos)
      << plan_report(*chosen);
  EXPECT_EQ(streams_used(*program(StreamPolicy::Cost, Scopes::Used)), 1U) << "who insists has them";
  const auto ignored = program(StreamPolicy::Cost, Scopes::Ignored);
  EXPECT_EQ(streams_used(*ignored), 4U);
  EXPECT_NE(plan_report(*ignored).find("the ids of 4 nodes are ignored"), std::string::npos);
  g.node(ends[0]).stream = 9;  // there is no such stream
  EXPECT_EQ(streams_used(*program(StreamPolicy::Cost, Scopes::Ignored)), 4U);
}

TEST(StreamsTest, EmbeddingSaysWhatItMovedOrThatItMovedNothing) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef one = g.variable("one", 16, true), two = g.variable("two", 16, true);
  const ValueRef rows = g.add("test.Gather", {one, x}, {}, "rows");
  const ValueRef other = g.add("test.Gather", {two, x}, {}, "other");
  g.mix({rows, other}, 4, "top");
  const auto report = [&](int streams) {
    return plan_report(
        *compile_test(g, {"top"}, {}, streams, StreamPolicy::Embedding, 2, {{"x", DType::Int64, Shape{4}}}));
  };
  EXPECT_NE(report(3).find("streams: EMBEDDING moved 2 ops of 2 branches onto streams 1 to 2"),
            std::string::npos)
      << report(3);
  EXPECT_NE(report(1).find("streams: EMBEDDING moved nothing: there is one compute stream"),
            std::string::npos)
      << report(1);
  g.node(rows).stream = g.node(other).stream = 0;
  EXPECT_NE(report(3).find("EMBEDDING moved nothing: the 2 ops of its 2 branches have streams already"),
            std::string::npos)
      << report(3);
  TestGraph none;
  none.mix({none.feed("x", 4)}, 4, "top");
  EXPECT_NE(plan_report(*compile_test(none, {"top"}, {}, 3, StreamPolicy::Embedding, 2,
                                      {{"x", DType::Int64, Shape{4}}}))
                .find("EMBEDDING moved nothing: nothing gathers from a table"),
            std::string::npos);
}

TEST(StreamsTest, EmbeddingGivesEachTablesBranchAStream) {
  TestGraph g;
  std::vector<ValueRef> tops;
  const ValueRef x = g.feed("x", 4);
  for (int t = 0; t < 3; ++t) {
    const std::string n = std::to_string(t);
    const ValueRef table = g.variable("table" + n, 16, true);
    const ValueRef index = g.mix({x}, 4, "index" + n);
    const ValueRef rows = g.add("test.Gather", {table, index}, {}, "rows" + n);
    tops.push_back(g.mix({rows}, 4, "after" + n));
    const ValueRef back = g.mix({tops.back()}, 4, "back" + n);
    g.node(back).forward_of = rows.node;
    g.add("test.Update", {table, back}, {}, "update" + n);
  }
  tops.push_back(g.mix({x}, 4, "dense"));
  g.mix(tops, 4, "top");
  const auto p = compile_test(g, {"top"}, {"update0", "update1", "update2"}, 3, StreamPolicy::Embedding, 2,
                              {{"x", DType::Int64, Shape{4}}});
  for (int t = 0; t < 3; ++t)
    for (const char* stem : {"index", "rows", "after", "back", "update"})
      EXPECT_EQ(stream_of(*p, stem + std::to_string(t)), 1 + t % 2) << stem << t;
  EXPECT_EQ(stream_of(*p, "dense"), 0);
  EXPECT_EQ(stream_of(*p, "top"), 0);
}

TEST(StreamsTest, OpsOfALaneHaveTheLanesStreamWhateverThePolicy) {
  TestGraph g;
  const ValueRef a = g.add("test.Pull", {g.feed("x", 4)}, {}, "a");
  g.add("test.Comm", {a}, {}, "b");
  const auto p = compile_test(g, {"b"}, {}, 2, StreamPolicy::Cost, 2, {{"x", DType::Int64, Shape{4}}});
  ASSERT_EQ(p->streams.size(), 4U);
  EXPECT_EQ(p->streams[2].name, "pull");
  EXPECT_EQ(p->streams[3].name, "comm");
  EXPECT_EQ(stream_of(*p, "a"), 2);
  EXPECT_EQ(stream_of(*p, "b"), 3);
}

/// What a stream has computed, without its waits.
std::vector<TraceSlice> work_of(Runtime& runtime, const std::string& stream) {
  std::vector<TraceSlice> slices = runtime.trace()->track(stream).slices();
  std::erase_if(slices, [](const TraceSlice& slice) { return slice.kind != TraceSlice::Kind::Work; });
  return slices;
}

TEST(StreamsTest, S2_IndependentBranchesOverlapAndChainsKeepTheirOrder) {
  TestGraph g;
  std::vector<ValueRef> ends;
  for (int b = 0; b < 2; ++b) {
    ValueRef v;
    for (int i = 0; i < 5; ++i) {
      v = g.add("test.Sleep", v.valid() ? std::vector<ValueRef>{v} : std::vector<ValueRef>{}, us(20000),
                "b" + std::to_string(b) + "_" + std::to_string(i));
      g.node(v).stream = b;
    }
    ends.push_back(v);
  }
  g.mix(ends, 1, "end");
  const auto p = compile_test(g, {"end"}, {}, 2, StreamPolicy::User);
  // In the trace: each chain in its order, and the two at the same time, unless the machine lets one of the
  // threads wait for so long. How much time that saves is for bench/stream_overlap to say.
  bool ordered = true;
  in_some_attempt([&] {
    RuntimeOptions options;
    options.trace = true;
    Runtime runtime(options);
    Instance instance(p, runtime);
    instance.run(request(0), soon());
    const auto first = work_of(runtime, "compute0"), second = work_of(runtime, "compute1");
    for (const auto& slices : {first, second})
      for (std::size_t i = 1; i < slices.size(); ++i) ordered &= slices[i - 1].end <= slices[i].begin;
    EXPECT_TRUE(std::any_of(first.begin(), first.end(), [&](const TraceSlice& a) {
      return std::any_of(second.begin(), second.end(),
                         [&](const TraceSlice& b) { return a.begin < b.end && b.begin < a.end; });
    }));
  });
  EXPECT_TRUE(ordered) << "in every attempt";
}

}  // namespace
}  // namespace braid::testing
