// Which waits between streams are issued, and which others imply.
#include <gtest/gtest.h>

#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

/// a (0) -> b (1), and c (2) of both: it need not wait for a, since b has.
struct OverAThirdStream : TestGraph {
  OverAThirdStream() {
    const ValueRef a = on(*this, 0, {feed("x", 4)}, "a");
    const ValueRef b = on(*this, 1, {a}, "b");
    on(*this, 2, {a, b}, "c");
  }
};

TEST(EventsTest, S6_AWaitThatOthersImplyIsNotIssued) {
  // a (0) -> b (1) -> c (0), and a -> c2 (1) after b: only a -> b and b -> c need events.
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a = on(g, 0, {x}, "a");
  const ValueRef b = on(g, 1, {a}, "b");
  const ValueRef b2 = on(g, 1, {a, b}, "b2");
  on(g, 0, {a, b, b2}, "c");
  const auto p = compile_test(g, {"c"}, {}, 2, StreamPolicy::User, 1, kX);
  EXPECT_EQ(p->stats.waits_issued, 2);   // b for a, c for b2
  EXPECT_EQ(p->stats.waits_removed, 2);  // b2 for a, c for b
  EXPECT_EQ(p->stats.events, 2);
}

TEST(EventsTest, S6_OrderThroughAThirdStreamCounts) {
  const OverAThirdStream g;
  const auto p = compile_test(g, {"c"}, {}, 3, StreamPolicy::User, 1, kX);
  EXPECT_EQ(p->stats.waits_issued, 2);
  EXPECT_EQ(p->stats.waits_removed, 1);
}

TEST(EventsTest, S6_AnEdgeBetweenStreamsCopiesNothing) {
  const OverAThirdStream g;
  const auto p = compile_test(g, {"c"}, {}, 3, StreamPolicy::User, 2, kX);
  ASSERT_EQ(p->ops.size(), 3U) << "no node for the edge";
  for (const ProgramOp& op : p->ops) {
    EXPECT_EQ(op.kind, OpKind::Kernel);
    for (const Operand& in : op.inputs) {
      if (in.producer >= 0) {
        EXPECT_EQ(in.buffer, p->ops[static_cast<std::size_t>(in.producer)].outputs[0].buffer);
      }
    }
  }
}

TEST(EventsTest, S6_AllWaitsStayWhenAskedFor) {
  const OverAThirdStream g;
  CompileOptions options;
  options.streams = {3, StreamPolicy::User, true};
  const auto p = compile(g.graph, {kX, {"c"}, {}}, options);
  EXPECT_EQ(p->stats.waits_issued, 3);
  EXPECT_EQ(p->stats.waits_removed, 0);
}

TEST(EventsTest, S6_AWaitIsForTheProducerNotForItsStreamsTail) {
  // c needs a only; the slow node after a on stream 0 does not hold it up.
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  const ValueRef slow = g.add("test.Sleep", {a}, {{"us", std::int64_t{100000}}}, "slow");
  g.node(slow).stream = 0;
  const ValueRef c = on(g, 1, {a}, "c");
  const auto p = compile_test(g, {"c", "slow"}, {}, 2, StreamPolicy::User, 1, kX);
  ASSERT_EQ(p->streams[1].instructions.size(), 2U);
  EXPECT_EQ(p->streams[1].instructions[0], (Instruction{Instruction::Kind::Wait, op_named(*p, "a")}));
  static_cast<void>(c);
}

TEST(EventsTest, AnAsynchronousNodeIsWaitedForOnItsOwnStreamToo) {
  TestGraph g;
  const ValueRef a = g.add("test.Pull", {g.feed("x", 4)}, {}, "a");
  g.add("test.Pull", {a}, {}, "b");
  const auto p = compile_test(g, {"b"}, {}, 1, StreamPolicy::None, 1, kX);
  EXPECT_EQ(p->stats.waits_issued, 1);
}

TEST(EventsTest, OneStreamNeedsNoEventsOverSteps) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef h = g.mix({g.feed("x", 4), g.read(w)});
  g.add("test.Update", {w, h}, {}, "update");
  const auto p = compile_test(g, {}, {"update"}, 1, StreamPolicy::None, 2, kX);
  EXPECT_EQ(p->stats.events, 0);
  EXPECT_EQ(p->stats.waits_previous, 0);
}

TEST(EventsTest, OneStepInFlightNeedsNoWaitsOnTheStepBefore) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef h = on(g, 1, {g.feed("x", 4), g.read(w)}, "h");
  const ValueRef update = g.add("test.Update", {w, h}, {}, "update");
  g.node(update).stream = 0;
  EXPECT_EQ(compile_test(g, {}, {"update"}, 2, StreamPolicy::User, 1, kX)->stats.waits_previous, 0);
  EXPECT_GT(compile_test(g, {}, {"update"}, 2, StreamPolicy::User, 2, kX)->stats.waits_previous, 0);
}

}  // namespace
}  // namespace braid::testing
