#include "engine/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tests/engine/ir/test_ops.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::join_op;
using testing::make_node;
using testing::source_op;

TEST(GraphTest, AddInfersOutputsAtOnce) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "a", {}, {{"shape", Shape{2, -1}}}));
  const NodeId b = graph.add(make_node(source_op(), "b", {}, {{"shape", Shape{-1, 3}}}));
  const NodeId c = graph.add(make_node(join_op(), "c", {{a, 0}, {b, 0}}));
  EXPECT_EQ(graph.info({c, 0}).shape, (Shape{2, 3}));
}

TEST(GraphTest, AddRefusesBadNodesByName) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "a", {}, {{"shape", Shape{2}}}));
  const NodeId b = graph.add(make_node(source_op(), "b", {}, {{"shape", Shape{3}}}));
  EXPECT_EQ(message_of([&] { graph.add(make_node(source_op(), "a")); }),
            "[TestSource] node 'a': another node has this name");
  EXPECT_EQ(message_of([&] { graph.add(make_node(join_op(), "c")); }),
            "[TestJoin] node 'c': expected at least 1 inputs, got 0");
  EXPECT_EQ(message_of([&] {
              graph.add(make_node(join_op(), "c", {{a, 1}}));
            }),
            "[TestJoin] node 'c': input 'a:1' does not exist: 'a' has 1 output");
  EXPECT_EQ(message_of([&] {
              graph.add(make_node(join_op(), "c", {{a, 0}, {b, 0}}));
            }),
            "[TestJoin] node 'c': shapes [2] and [3] differ");
  EXPECT_EQ(graph.size(), 2);
  EXPECT_EQ(graph.find("c"), kNoNode);
}

TEST(GraphTest, ValueNamesRoundTrip) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "scope/a"));
  EXPECT_EQ(graph.value_name({a, 0}), "scope/a");
  EXPECT_EQ(graph.value_name({a, 2}), "scope/a:2");
  EXPECT_EQ(graph.parse_value("scope/a:0"), (ValueRef{a, 0}));
  EXPECT_EQ(graph.parse_value("^scope/a"), (ValueRef{a, -1}));
  EXPECT_THAT(message_of([&] { graph.parse_value("scope/a:1"); }), HasSubstr("has 1 output"));
  EXPECT_THAT(message_of([&] { graph.parse_value("b"); }), HasSubstr("no node 'b'"));
  EXPECT_THAT(message_of([&] { graph.parse_value("scope/a:x"); }), HasSubstr("does not name a value"));
}

TEST(GraphTest, UniqueNameTakesTheFirstFreeOne) {
  Graph graph;
  EXPECT_EQ(graph.unique_name("x"), "x");
  graph.add(make_node(source_op(), "x"));
  EXPECT_EQ(graph.unique_name("x"), "x_1");
  graph.add(make_node(source_op(), "x_2"));
  EXPECT_EQ(graph.unique_name("x"), "x_1");
  graph.add(make_node(source_op(), "x_1"));
  EXPECT_EQ(graph.unique_name("x"), "x_3");
}

TEST(GraphTest, RemovedNodesFreeTheirName) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "a"));
  graph.remove(a);
  EXPECT_EQ(graph.find("a"), kNoNode);
  EXPECT_NE(graph.add(make_node(source_op(), "a")), a);
  EXPECT_THAT(graph.topological_order(), ElementsAre(1));
}

TEST(GraphTest, ReplacingUsesKeepsOthers) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "a"));
  const NodeId b = graph.add(make_node(source_op(), "b"));
  const NodeId c = graph.add(make_node(join_op(), "c", {{a, 0}, {b, 0}, {a, 0}}));
  graph.replace_uses({a, 0}, {b, 0});
  EXPECT_THAT(graph.node(c).inputs, ElementsAre(ValueRef{b, 0}, ValueRef{b, 0}, ValueRef{b, 0}));
  // Both at once is a swap, not a chain.
  graph.mutable_node(c).inputs = {{a, 0}, {b, 0}};
  graph.replace_uses({{{a, 0}, {b, 0}}, {{b, 0}, {a, 0}}});
  EXPECT_THAT(graph.node(c).inputs, ElementsAre(ValueRef{b, 0}, ValueRef{a, 0}));
}

TEST(GraphTest, TopologicalOrderBreaksTiesById) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "a"));
  const NodeId b = graph.add(make_node(source_op(), "b"));
  const NodeId c = graph.add(make_node(join_op(), "c", {{b, 0}}));
  graph.mutable_node(a).control_inputs = {c};
  EXPECT_THAT(graph.topological_order(), ElementsAre(b, c, a));
}

TEST(GraphTest, CycleErrorNamesItsNodesOnly) {
  Graph graph;
  const NodeId a = graph.add(make_node(source_op(), "a"));
  const NodeId b = graph.add(make_node(join_op(), "b", {{a, 0}}));
  const NodeId c = graph.add(make_node(join_op(), "c", {{b, 0}}));
  graph.add(make_node(join_op(), "behind", {{c, 0}}));
  graph.mutable_node(b).control_inputs = {c};
  EXPECT_EQ(message_of([&] { graph.topological_order(); }), "the graph has a cycle: 'c' -> 'b' -> 'c'");
}

TEST(GraphTest, TenThousandNodesSortInMilliseconds) {
  Graph graph;
  NodeId last = graph.add(make_node(source_op(), "n", {}, {{"shape", Shape{8}}}));
  for (int i = 1; i < 10'000; ++i) {
    last = graph.add(make_node(join_op(), graph.unique_name("n"), {{last, 0}, {last / 2, 0}}));
  }
  const std::clock_t start = std::clock();  // of the process: others may be busy
  const auto order = graph.topological_order();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(order.size(), 10'000u);
  EXPECT_LT(seconds, 0.5);  // 5 ms alone; the bound leaves room for sanitizers
}

}  // namespace
}  // namespace braid
