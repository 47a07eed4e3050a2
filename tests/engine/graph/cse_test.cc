// Common subexpressions: which nodes become one, and which stay apart.
#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

using Change = std::function<void(TestGraph&, ValueRef a, ValueRef b)>;

/// How many of two equal nodes remain when `change` has been done to them.
int remaining(const Change& change) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a = g.add("AddN", {x, x}, {}, "a"), b = g.add("AddN", {x, x}, {}, "b");
  change(g, a, b);
  g.mix({a, b}, 4, "end");
  const auto program =
      compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 1, {{"x", DType::Int64, Shape{4}}});
  int nodes = 0;
  for (const ProgramOp& node : program->ops) nodes += node.name == "a" || node.name == "b" ? 1 : 0;
  return nodes;
}

void nothing(TestGraph&, ValueRef, ValueRef) {}

TEST(MergeTest, EqualNodesBecomeOne) { EXPECT_EQ(remaining(nothing), 1); }

TEST(MergeTest, OtherAttributesStreamsDevicesAndColocationsKeepThemApart) {
  EXPECT_EQ(
      remaining([](TestGraph& g, ValueRef, ValueRef b) { g.node(b).attrs.set("_note", std::int64_t{5}); }),
      2);
  EXPECT_EQ(remaining([](TestGraph& g, ValueRef, ValueRef b) { g.node(b).stream = 1; }), 2);
  EXPECT_EQ(remaining([](TestGraph& g, ValueRef a, ValueRef b) { g.node(a).stream = g.node(b).stream = 1; }),
            1);
  EXPECT_EQ(remaining([](TestGraph& g, ValueRef, ValueRef b) { g.node(b).device = "/cpu:0"; }), 2);
  EXPECT_EQ(
      remaining([](TestGraph& g, ValueRef, ValueRef b) { g.node(b).colocate_with = g.graph.find("x"); }), 2);
}

TEST(MergeTest, ControlInputsMustBeTheSame) {
  const auto before = [](TestGraph& g) { return g.mix({{g.graph.find("x"), 0}}, 4, "before"); };
  EXPECT_EQ(remaining([&](TestGraph& g, ValueRef, ValueRef b) { g.control(before(g), b); }), 2);
  EXPECT_EQ(remaining([&](TestGraph& g, ValueRef a, ValueRef b) {
              const ValueRef first = before(g);
              g.control(first, a);
              g.control(first, b);
            }),
            1);
}

TEST(MergeTest, OfWhatIsUsedForItsShapeAloneTheShapeCounts) {
  for (const std::int64_t size : {4, 2}) {
    TestGraph g;
    const ValueRef x = g.feed("x", 4), y = g.feed("y", 4), z = g.feed("z", size);
    const ValueRef a = g.add("braid.RowsLike", {x, y}, {}, "a"), b = g.add("braid.RowsLike", {x, z}, {}, "b");
    g.mix({a, b}, 4, "end");
    const auto program = compile_test(
        g, {"end"}, {}, 2, StreamPolicy::User, 1,
        {{"x", DType::Int64, Shape{4}}, {"y", DType::Int64, Shape{4}}, {"z", DType::Int64, Shape{size}}});
    EXPECT_EQ(count_ops(*program, "braid.RowsLike"), size == 4 ? 1 : 2);
  }
}

TEST(MergeTest, RandomOpsAndSideEffectsStay) {
  TestGraph g;
  const ValueRef shape = g.constant({4});
  const AttrMap attrs = {{"dtype", DType::Float32}, {"T", DType::Int64}};
  const ValueRef a = g.add("RandomUniform", {shape}, attrs, "a"),
                 b = g.add("RandomUniform", {shape}, attrs, "b");
  g.add("Sub", {a, b}, {}, "end");
  EXPECT_EQ(compile_test(g, {"end"}, {}, 1, StreamPolicy::None, 1)->ops.size(), 3U);
}

TEST(MergeTest, EqualConstantsAreOneInput) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a = g.add("Sum", {x, g.constant({0})}, {}, "a"),
                 b = g.add("Sum", {x, g.constant({0})}, {}, "b");
  const ValueRef c = g.add("Sum", {x, g.constant({-1})}, {}, "c");
  g.mix({a, b, c}, 4, "end");
  const auto program =
      compile_test(g, {"end"}, {}, 1, StreamPolicy::None, 1, {{"x", DType::Int64, Shape{4}}});
  EXPECT_EQ(program->ops.size(), 3U);  // a, c and end
}

TEST(MergeTest, ChainsMergeAndWhatIsColocatedFollows) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a1 = g.add("AddN", {x, x}, {}, "a1"), b1 = g.add("AddN", {x, x}, {}, "b1");
  const ValueRef a2 = g.add("AddN", {a1, a1}, {}, "a2"), b2 = g.add("AddN", {b1, b1}, {}, "b2");
  const ValueRef beside = g.mix({x}, 4, "beside");
  g.node(a1).stream = g.node(b1).stream = 1;
  g.node(beside).colocate_with = b1.node;
  g.mix({a2, b2, beside}, 4, "end");
  const auto program =
      compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 1, {{"x", DType::Int64, Shape{4}}});
  EXPECT_EQ(program->ops.size(), 4U);
  for (const ProgramOp& op : program->ops) EXPECT_EQ(op.stream, op.name == "beside" ? 1 : op.stream);
}

}  // namespace
}  // namespace braid::testing
