// Which updates and gathers of a device's program become one node. Compiling needs no device, only the CUDA
// kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/exec/program.h"
#include "engine/ops/op.h"
#include "engine/ops/optimizer_attrs.h"
#include "engine/passes/compile.h"

namespace braid::testing {
namespace {

class GroupUpdatesTest : public ::testing::Test {
 protected:
  using Ops = std::vector<std::string>;

  void SetUp() override {
    if (!OpRegistry::global().require("braid.ApplyOptimizerMany").cuda)
      GTEST_SKIP() << "this build has no CUDA kernels";
  }

  ValueRef add(const std::string& name, const std::string& op, std::vector<ValueRef> inputs, AttrMap attrs) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return {graph_.add(std::move(node)), 0};
  }
  ValueRef variable(const std::string& name, const Shape& shape) {
    return add(name, "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", shape}});
  }
  ValueRef feed(const std::string& name, DType dtype, const Shape& shape) {
    request_.feeds.push_back({name, dtype, shape});
    return add(name, "Placeholder", {}, {{"dtype", dtype}, {"shape", shape}});
  }
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

  /// "op of n inputs" of all kernels, sorted.
  std::vector<std::string> compiled(Domain domain = Domain::Device) {
    CompileOptions options;
    options.domain = domain;
    std::vector<std::string> ops;
    const auto program = compile(graph_, request_, options);
    for (const ProgramOp& op : program->ops)
      if (op.writes_variable) ops.push_back(op.op + " " + std::to_string(op.inputs.size()));
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

  Graph graph_;
  CompileRequest request_;
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
  dense("large", {2048, 1024});
  const NodeId host = dense("host", {3});
  graph_.mutable_node(host).device = "/cpu:0";
  dense("b", {3});
  EXPECT_EQ(compiled(),
            (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizer 2", "braid.ApplyOptimizerMany 4"}));
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
