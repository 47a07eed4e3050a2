// Streams of colocation groups in programs: of several targets, of what is pruned, batched, or on a lane.
#include "engine/ir/colocation.h"

#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/plan_report.h"
#include "engine/import/import.h"
#include "engine/program/stream_rules.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/engine/testing/towers.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

int stream_of_op(const Program& program, const std::string& name) {
  const int op = op_named(program, name);
  if (op >= 0) return program.ops[static_cast<std::size_t>(op)].stream;
  ADD_FAILURE() << "no op " << name;
  return -1;
}

/// `a` and `b` on streams of their own where they have one, `c` with both.
Graph with_two_targets(int a, int b) {
  register_test_ops();
  GraphBuilder g;
  const auto on = [&](int stream, const std::string& name) {
    std::optional<StreamScope> scope;
    if (stream != kNoStream) scope.emplace(g, stream);
    return g.op("Relu", {g.placeholder(name + "/x", DType::Float32, {4})}, {}, name);
  };
  const Output first = on(a, "a"), second = on(b, "b");
  const ColocateScope with_first(g, first), with_second(g, second);
  g.op("AddV2", {first, second}, {}, "c");
  return import_graph(g.graph());
}

std::shared_ptr<const Program> compile_two(const Graph& graph, StreamPolicy policy = StreamPolicy::User) {
  CompileOptions options;
  options.streams.count = 4;
  options.streams.policy = policy;
  return compile(graph, {{{"a/x", DType::Float32, Shape{4}}, {"b/x", DType::Float32, Shape{4}}}, {"c"}, {}},
                 options);
}

TEST(ColocationTest, S3_TwoTargetsWithTwoIdsAreRefusedByName) {
  const std::string says =
      "[Relu] node 'a' is on stream 1 and [Relu] node 'b' on stream 2, but they are colocated";
  for (const auto policy : {StreamPolicy::User, StreamPolicy::Cost, StreamPolicy::Full, StreamPolicy::Auto})
    EXPECT_EQ(message_of([&] { compile_two(with_two_targets(1, 2), policy); }), says);
  EXPECT_NO_THROW(compile_two(with_two_targets(1, 2), StreamPolicy::None)) << "which uses no id";
}

TEST(ColocationTest, S3_TheIdOfOneTargetIsThatOfAll) {
  for (const auto& [a, b] : {std::pair{2, kNoStream}, {kNoStream, 2}, {2, 2}}) {
    const auto p = compile_two(with_two_targets(a, b));
    for (const char* name : {"a", "b", "c"}) EXPECT_EQ(stream_of_op(*p, name), 2) << name;
  }
}

TEST(ColocationTest, S3_TwoRulesForTwoTargetsAreRefusedWithTheirLines) {
  CompileOptions options;
  options.streams.count = 4;
  options.streams.policy = StreamPolicy::User;
  options.streams.rules = std::make_shared<const StreamRules>(StreamRules::parse("1:a\n2:b\n", "r"));
  EXPECT_EQ(message_of([&] {
              compile(with_two_targets(kNoStream, kNoStream),
                      {{{"a/x", DType::Float32, Shape{4}}, {"b/x", DType::Float32, Shape{4}}}, {"c"}, {}},
                      options);
            }),
            "[Relu] node 'a' is on stream 1 (r:1) and [Relu] node 'b' on stream 2 (r:2), but they are "
            "colocated");
}

TEST(ColocationTest, S3_AGroupStaysOneWhenItsTargetIsNotNeeded) {
  TestGraph g;
  const ValueRef target = g.add("test.Nop", {}, {}, "target"), a = g.add("test.Nop", {}, {}, "a"),
                 b = g.add("test.Nop", {}, {}, "b");
  g.node(a).colocate_with = g.node(b).colocate_with = target.node;
  g.mix({a, b}, 1, "end");
  g.node(a).stream = 1;
  const auto p = compile_test(g, {"end"}, {}, 4, StreamPolicy::User);
  EXPECT_EQ(stream_of_op(*p, "b"), 1);
  g.node(b).stream = 2;
  EXPECT_EQ(message_of([&] { compile_test(g, {"end"}, {}, 4, StreamPolicy::User); }),
            "[test.Nop] node 'a' is on stream 1 and [test.Nop] node 'b' on stream 2, but they are colocated");
  g.node(target).stream = 3;
  EXPECT_EQ(stream_of_op(*compile_test(g, {"end"}, {}, 4, StreamPolicy::User), "b"), 3);
}

/// An update with its gradient, whose forward node the user has put on a stream.
TestGraph with_update() {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef forward = g.mix({g.read(w)}, 4, "forward");
  const ValueRef gradient = g.mix({forward}, 4, "gradient");
  g.node(gradient).forward_of = forward.node;
  const ValueRef update = g.add("test.Update", {w, gradient}, {}, "update");
  g.node(update).colocate_with = gradient.node;
  return g;
}

TEST(ColocationTest, S5_AnUpdateFollowsItsGradientToTheStreamOfTheForwardNode) {
  TestGraph g = with_update();
  g.node({g.graph.find("forward"), 0}).stream = 2;
  g.node({g.graph.find("gradient"), 0}).stream = 2;  // as autodiff copies it
  for (const auto policy : {StreamPolicy::User, StreamPolicy::Cost, StreamPolicy::Full}) {
    const auto p = compile_test(g, {}, {"update"}, 3, policy);
    EXPECT_EQ(stream_of_op(*p, "gradient"), 2);
    EXPECT_EQ(stream_of_op(*p, "update"), 2) << stream_policy_name(policy);
  }
}

TEST(ColocationTest, S5_ByARuleToo) {
  CompileOptions options;
  options.streams.count = 3;
  options.streams.policy = StreamPolicy::User;
  options.streams.rules = std::make_shared<const StreamRules>(StreamRules::parse("1:forward\n", "r"));
  const auto p = compile(with_update().graph, {{}, {}, {"update"}}, options);
  EXPECT_EQ(stream_of_op(*p, "gradient"), 1);
  EXPECT_EQ(stream_of_op(*p, "update"), 1);
  options.streams.grad_follows_forward = false;
  EXPECT_EQ(stream_of_op(*compile(with_update().graph, {{}, {}, {"update"}}, options), "update"), 0);
}

TEST(ColocationTest, WhatIsWithANodeOfALaneStaysOnComputeStreams) {
  for (const auto policy :
       {StreamPolicy::User, StreamPolicy::Cost, StreamPolicy::Full, StreamPolicy::Embedding}) {
    TestGraph g;
    const ValueRef pull = g.add("test.Pull", {g.feed("x", 4)}, {}, "pull");
    const ValueRef a = g.mix({pull}, 4, "a"), b = g.mix({pull}, 4, "b");
    g.node(a).colocate_with = g.node(b).colocate_with = pull.node;
    g.mix({a, b}, 4, "end");
    const auto p = compile_test(g, {"end"}, {}, 2, policy, 2, kX);
    EXPECT_EQ(stream_of_op(*p, "pull"), 2);
    EXPECT_LT(stream_of_op(*p, "a"), 2) << stream_policy_name(policy);
    EXPECT_EQ(stream_of_op(*p, "a"), stream_of_op(*p, "b")) << "they are one group all the same";
  }
}

/// With rules for the towers' own nodes alone.
std::shared_ptr<const Program> compile_ruled_towers(BatchSiblings batching) {
  const Towers towers = make_towers({}, true);
  CompileOptions options;
  options.batch_siblings = batching;
  options.streams.count = 4;
  options.streams.policy = StreamPolicy::User;
  options.streams.rules = std::make_shared<const StreamRules>(
      StreamRules::parse("0:tower0/.*\n1:tower1/.*\n2:tower2/.*\n3:tower3/.*\n", "r"));
  return compile(towers.graph, towers.request, options);
}

TEST(ColocationTest, BackwardNodesAndUpdatesOfTowersThatRulesPutApartAreNotBatched) {
  const auto apart = compile_ruled_towers(BatchSiblings::WithinScopes);
  for (const char* op : {"BatchMatMulV2", "Pack", "Unpack"}) EXPECT_EQ(count_ops(*apart, op), 0) << op;
  EXPECT_EQ(stream_of_op(*apart, "update/tower2/layer1/kernel"), 2);
}

TEST(ColocationTest, LayersThatAreColocatedWithoutAStreamAreBatchedWithTheirGradients) {
  constexpr int kTowers = 4;
  GraphBuilder b;
  Towers towers;
  towers.request.feeds = {{"x", DType::Float32, Shape{kRows, kWide}}};
  const Output x = b.placeholder("x", DType::Float32, Shape{kRows, kWide});
  std::vector<Output> tops;
  for (int t = 0; t < kTowers; ++t) {
    NameScope name(b, "tower" + std::to_string(t));
    const Output below = b.dense("below", x, kWide, kWide, true);
    const ColocateScope with(b, below);
    tops.push_back(b.dense("above", below, kWide, kWide, true));
  }
  const Output all = b.concat(tops, 1), loss = b.reduce_mean(b.mul(all, all));
  towers.graph = import_graph(b.graph());
  towers.request.fetches = {loss.name()};
  add_training(towers, OptimizerKind::Sgd);
  for (const int streams : {1, 2}) {
    const auto program = compile_towers(towers, BatchSiblings::WithinScopes, streams);
    EXPECT_EQ(count_ops(*program, "MatMul"), 0) << streams;
    EXPECT_GT(count_ops(*program, "BatchMatMulV2"), 0) << streams;
  }
}

TEST(ColocationTest, WhatIsWithALaneIsWithItsBatch) {
  Towers towers = make_towers({.optimizer = OptimizerKind::Sgd}, true);
  Graph& graph = towers.graph;
  const NodeId top = graph.parse_value(towers.tops[1]).node;
  Node beside;
  beside.op = &OpRegistry::global().require("Neg");
  beside.name = "beside";
  beside.inputs = {graph.parse_value("x")};
  beside.colocate_with = top;
  graph.add(std::move(beside));
  towers.request.fetches.push_back("beside");
  CompileOptions options;
  options.batch_siblings = BatchSiblings::WithinScopes;
  options.streams.count = 3;
  options.streams.policy = StreamPolicy::User;
  options.streams.rules =
      std::make_shared<const StreamRules>(StreamRules::parse("2:tower[0-9]+/layer2/.*\n", "r"));
  const auto p = compile(graph, towers.request, options);
  EXPECT_GT(count_ops(*p, "BatchMatMulV2"), 0);
  EXPECT_EQ(stream_of_op(*p, "beside"), 2);
}

}  // namespace
}  // namespace braid::testing
