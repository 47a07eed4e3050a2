// Which updates and gathers of a device's program become one node. Compiling needs no device.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/program/program.h"
#include "tests/engine/rewrite/updates_test_base.h"

namespace braid::testing {
namespace {

class GroupUpdatesTest : public UpdatesTest {
 protected:
  /// SGD on a variable of its own.
  NodeId dense(const std::string& name, const Shape& shape, float decay = 0) {
    const ValueRef gradient = feed(name + "/g", DType::Float32, shape);
    return target(add(name, "braid.ApplyOptimizer", {variable(name + "/w", shape), gradient},
                      optimizer_attrs({.weight_decay = decay})));
  }
  NodeId sparse(const std::string& name, std::int64_t rows, std::int64_t width, std::int64_t indices) {
    const ValueRef table = variable(name + "/w", {rows, width});
    const ValueRef index = feed(name + "/i", DType::Int64, {indices});
    const ValueRef values = feed(name + "/v", DType::Float32, {indices, width});
    return target(
        add(name, "braid.SparseApplyOptimizer", {table, index, values}, optimizer_attrs(OptimizerSpec{})));
  }
  NodeId target(ValueRef update) {
    request_.targets.push_back(graph_.node(update.node).name);
    return update.node;
  }

  /// Another update by the same indices.
  NodeId sparse_as(const std::string& name, const std::string& other, std::int64_t rows, std::int64_t width) {
    const ValueRef index{graph_.find(other + "/i"), 0};
    const ValueRef values = feed(name + "/v", DType::Float32, {graph_.info(index).shape[0], width});
    return target(add(name, "braid.SparseApplyOptimizer",
                      {variable(name + "/w", {rows, width}), index, values},
                      optimizer_attrs(OptimizerSpec{})));
  }

  /// "op of n inputs" of all updates and what groups their rows, sorted.
  std::vector<std::string> compiled(Domain domain = Domain::Device, int streams = 1,
                                    StreamPolicy policy = StreamPolicy::Auto) {
    CompileOptions options;
    options.domain = domain;
    options.streams.count = streams;
    options.streams.policy = policy;
    std::vector<std::string> ops;
    const auto program = compile(graph_, request_, options);
    for (const ProgramOp& op : program->ops)
      if (op.writes_variable || op.op == "braid.GroupRows")
        ops.push_back(op.op + " " + std::to_string(op.inputs.size()));
    std::sort(ops.begin(), ops.end());
    return ops;
  }
  ValueRef gather(const std::string& name, ValueRef indices, int stream = kNoStream) {
    const ValueRef rows =
        add(name, "ResourceGather", {variable(name + "/w", {9, 4}), indices}, {{"dtype", DType::Float32}});
    graph_.mutable_node(rows.node).stream = stream;
    request_.fetches.push_back(name);
    return rows;
  }
  /// Gathers of the program, sorted.
  Ops gathers(StreamPolicy policy = StreamPolicy::User) {
    CompileOptions options;
    options.domain = Domain::Device;
    options.streams.count = 2;
    options.streams.policy = policy;
    const auto program = compile(graph_, request_, options);
    Ops ops;
    for (const ProgramOp& op : program->ops)
      if (op.op.find("Gather") != std::string::npos)
        ops.push_back(op.op + " " + std::to_string(op.inputs.size()));
    std::sort(ops.begin(), ops.end());
    return ops;
  }
};

TEST_F(GroupUpdatesTest, UpdatesOfOneOptimizerBecomeOneNode) {
  dense("a", {3});
  dense("b", {4, 5});
  dense("c", {1}, 0.5F);
  sparse("t", 10, 4, 3);
  sparse("u", 20, 4, 5);
  sparse("wide", 20, 8, 5);
  EXPECT_EQ(compiled(), (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizerMany 4",
                             "braid.SparseApplyOptimizer 3", "braid.SparseApplyOptimizerMany 6"}));
}

TEST_F(GroupUpdatesTest, HostProgramsKeepTheirUpdates) {
  dense("a", {3});
  dense("b", {4, 5});
  EXPECT_EQ(compiled(Domain::Host), (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizer 2"}));
}

TEST_F(GroupUpdatesTest, AnUpdateThatANodeWaitsForIsLeftAlone) {
  const NodeId a = dense("a", {3});
  dense("b", {3});
  dense("c", {3});
  const ValueRef read =
      add("read", "ReadVariableOp", {{graph_.node(a).inputs[0].node, 0}}, {{"dtype", DType::Float32}});
  graph_.mutable_node(read.node).control_inputs.push_back(a);
  request_.fetches.push_back("read");
  EXPECT_EQ(compiled(), (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizerMany 4"}));
}

TEST_F(GroupUpdatesTest, LargeVariablesAndThoseOfTheHostAreLeftAlone) {
  dense("a", {3});
  dense("large", {2049, 1024});
  const NodeId host = dense("host", {3});
  graph_.mutable_node(host).device = "/cpu:0";
  dense("b", {3});
  EXPECT_EQ(compiled(),
            (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizer 2", "braid.ApplyOptimizerMany 4"}));
}

TEST_F(GroupUpdatesTest, AGroupIsBounded) {
  for (int i = 0; i < 9; ++i) dense("d" + std::to_string(i), {2048, 1024});
  EXPECT_EQ(compiled(), (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizerMany 16"}));
}

TEST_F(GroupUpdatesTest, OnSeveralStreamsTheRowsOfSparseUpdatesAreGroupedApart) {
  sparse("t", 10, 4, 3);
  sparse("u", 20, 4, 5);
  const NodeId wide = sparse("wide", 20, 8, 5);
  dense("a", {3});
  EXPECT_EQ(compiled(Domain::Device, 2),
            (Ops{"braid.ApplyOptimizer 2", "braid.GroupRows 1", "braid.GroupRows 2",
                 "braid.SparseApplyGrouped 3", "braid.SparseApplyGrouped 5"}));
  EXPECT_EQ(
      compiled(Domain::Device, 2, StreamPolicy::None),
      (Ops{"braid.ApplyOptimizer 2", "braid.SparseApplyOptimizer 3", "braid.SparseApplyOptimizerMany 6"}));
  EXPECT_EQ(compiled(Domain::Host, 2), (Ops{"braid.ApplyOptimizer 2", "braid.SparseApplyOptimizer 3",
                                            "braid.SparseApplyOptimizer 3", "braid.SparseApplyOptimizer 3"}));
  graph_.mutable_node(wide).device = "/cpu:0";
  EXPECT_EQ(compiled(Domain::Device, 2), (Ops{"braid.ApplyOptimizer 2", "braid.GroupRows 2",
                                              "braid.SparseApplyGrouped 5", "braid.SparseApplyOptimizer 3"}));
}

TEST_F(GroupUpdatesTest, TablesOfTwoWidthsWithOneFeatureShareTheGroupingOfTheirRows) {
  sparse("t", 10, 4, 3);
  sparse("u", 20, 4, 5);
  sparse_as("t1", "t", 10, 1);
  sparse_as("u1", "u", 20, 1);
  EXPECT_EQ(compiled(Domain::Device, 4),
            (Ops{"braid.GroupRows 2", "braid.SparseApplyGrouped 5", "braid.SparseApplyGrouped 5"}));
  sparse_as("other", "u", 21, 2);  // of other rows
  EXPECT_EQ(compiled(Domain::Device, 4),
            (Ops{"braid.GroupRows 1", "braid.GroupRows 2", "braid.SparseApplyGrouped 3",
                 "braid.SparseApplyGrouped 5", "braid.SparseApplyGrouped 5"}));
}

TEST_F(GroupUpdatesTest, TheGroupingOfRowsWaitsForIndicesOnly) {
  const NodeId update = sparse("t", 10, 4, 3);
  const NodeId before = dense("a", {3});
  graph_.mutable_node(update).control_inputs.push_back(before);
  CompileOptions options;
  options.domain = Domain::Device;
  options.streams.count = 2;
  const auto program = compile(graph_, request_, options);
  const Node& grouping = program->graph.node(program->graph.find("t/rows"));
  EXPECT_EQ(grouping.inputs, (std::vector<ValueRef>{{program->graph.find("t/i"), 0}}));
  EXPECT_TRUE(grouping.control_inputs.empty());
  EXPECT_EQ(program->graph.node(update).control_inputs, std::vector<NodeId>{before});
}

/// Lists of other workers' rows that have -1 at their ends come with the gradients, or were kept by a step
/// before.
TEST_F(GroupUpdatesTest, RowsOfPaddedListsAreGroupedAheadWhereTheyAreKept) {
  const auto padded = [this](const std::string& name, ValueRef indices, std::int64_t width) {
    const ValueRef values = feed(name + "/v", DType::Float32, {6, width});
    AttrMap attrs = optimizer_attrs(OptimizerSpec{});
    attrs.set(kSkipNegative, true);
    target(add(name, "braid.SparseApplyOptimizer", {variable(name + "/w", {10, width}), indices, values},
               attrs));
  };
  padded("sent", feed("sent/i", DType::Int32, {6}), 4);
  EXPECT_EQ(compiled(Domain::Device, 2), (Ops{"braid.SparseApplyOptimizer 3"}));
  const ValueRef handle = add("lists", "VarHandleOp", {}, {{"dtype", DType::Int32}, {"shape", Shape{2, 3}}});
  const ValueRef lists = add("lists/read", "ReadVariableOp", {handle}, {{"dtype", DType::Int32}});
  const std::vector<std::int32_t> one_axis{-1};
  const ValueRef all =
      add("all", "Const", {},
          {{"dtype", DType::Int32}, {"value", Tensor::from<std::int32_t>(Shape{1}, one_axis)}});
  padded("kept", add("kept/i", "Reshape", {lists, all}, {}), 8);
  EXPECT_EQ(compiled(Domain::Device, 2),
            (Ops{"braid.GroupRows 1", "braid.SparseApplyGrouped 3", "braid.SparseApplyOptimizer 3"}));
}

TEST_F(GroupUpdatesTest, GathersOfManyTablesBecomeOneNode) {
  const ValueRef indices = feed("i", DType::Int64, {3});
  gather("a", indices);
  gather("b", indices);
  gather("c", feed("j", DType::Int32, {2, 2}));
  EXPECT_EQ(gathers(), (Ops{"braid.GatherMany 6"}));
  EXPECT_EQ(gathers(StreamPolicy::Embedding),
            (Ops{"ResourceGather 2", "ResourceGather 2", "ResourceGather 2"}));
}

TEST_F(GroupUpdatesTest, GathersOnStreamsOfTheirOwnStayApart) {
  const ValueRef indices = feed("i", DType::Int64, {3});
  gather("a", indices, 0);
  gather("b", indices, 1);
  gather("c", indices, 1);
  EXPECT_EQ(gathers(), (Ops{"ResourceGather 2", "braid.GatherMany 4"}));
}

TEST_F(GroupUpdatesTest, AGatherThatFollowsAnotherOrAWriteIsNotGroupedWithIt) {
  const ValueRef rows = gather("a", feed("i", DType::Int64, {3}));
  const ValueRef next = add("next", "Cast", {rows}, {{"SrcT", DType::Float32}, {"DstT", DType::Int32}});
  gather("b", next);
  gather("c", next);
  const NodeId update = dense("w", {3});
  const ValueRef late = gather("late", next);
  graph_.mutable_node(late.node).control_inputs.push_back(update);
  EXPECT_EQ(gathers(), (Ops{"ResourceGather 2", "ResourceGather 2", "braid.GatherMany 4"}));
}

}  // namespace
}  // namespace braid::testing
