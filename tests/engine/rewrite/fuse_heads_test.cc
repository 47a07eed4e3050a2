// Heads of one output and lanes that are joined: fewer nodes on a device, which mean the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"
#include "models/multi_branch.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/differentiated.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kHeadRows = 64, kHeadWidth = 32;

/// Of towers side by side under one head, or of a mixture of experts, whose tasks have heads of their own.
Differentiated towers(int count, int streams = 0) {
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds{{"y", random_floats({kHeadRows}, 1)}};
  std::vector<Output> inputs;
  for (int i = 0; i < count; ++i) {
    feeds.emplace_back("x" + std::to_string(i),
                       random_floats({kHeadRows, kHeadWidth}, 2 + static_cast<unsigned>(i)));
    inputs.push_back(b.placeholder(feeds.back().first, DType::Float32, Shape{kHeadRows, kHeadWidth}));
  }
  const Output y = b.placeholder("y", DType::Float32, Shape{kHeadRows});
  return differentiated(b, build_towers(b, inputs, kHeadWidth, y, streams), std::move(feeds));
}

/// Two layers and a head.
Differentiated network() {
  GraphBuilder b;
  const auto layer = [&](const std::string& name, const Output& x, std::int64_t from, std::int64_t to) {
    NameScope scope(b, name);
    const Output product = b.matmul(x, b.read(b.variable("kernel", Shape{from, to}, {})));
    return b.op("BiasAdd", {product, b.read(b.variable("bias", Shape{to}, {}))});
  };
  Output x = b.placeholder("x", DType::Float32, Shape{kHeadRows, kHeadWidth});
  x = b.op("Relu", {layer("a", x, kHeadWidth, 16)});
  x = b.op("Relu", {layer("b", x, 16, 8)});
  const Output logit =
      b.op("Squeeze", {layer("head", x, 8, 1)}, {{"squeeze_dims", std::vector<std::int64_t>{1}}});
  const Output losses =
      b.op("braid.SigmoidCrossEntropy", {logit, b.placeholder("y", DType::Float32, Shape{kHeadRows})});
  return differentiated(
      b, b.reduce_mean(losses, {0}),
      {{"x", random_floats({kHeadRows, kHeadWidth}, 1)}, {"y", random_floats({kHeadRows}, 2)}});
}

Differentiated mixture(int streams = 0) {
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kHeadRows, kHeadWidth}, 1)}};
  std::vector<Output> labels;
  for (int t = 0; t < 4; ++t) {
    feeds.emplace_back("y" + std::to_string(t), random_floats({kHeadRows}, 2 + static_cast<unsigned>(t)));
    labels.push_back(b.placeholder(feeds.back().first, DType::Float32, Shape{kHeadRows}));
  }
  const Output x = b.placeholder("x", DType::Float32, Shape{kHeadRows, kHeadWidth});
  return differentiated(b, build_mmoe(b, x, kHeadWidth, labels, 3, streams), std::move(feeds));
}

int joined_layers(const Program& program) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(), [&](const ProgramOp& op) {
    return op.op == "braid.FusedMatMul" && program.graph.node(op.node).attrs.get<bool>("joined", false);
  }));
}

TEST(FuseHeadsTest, AHeadsGradientIsNeverWritten) {
  const Differentiated model = network();
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "braid.ReluHeadGrad"), 1);
  EXPECT_EQ(count_ops(*program, "braid.ReluBiasGrad"), 1) << "of the layer that no head follows";
  EXPECT_EQ(count_ops(*program, "MatMul"), 3) << "gradients of layers; none is of the head";
  expect_same_values(model, *program);
}

TEST(FuseHeadsTest, TowersAreWrittenSideBySideUnderTheirHead) {
  const Differentiated model = towers(8);
  const auto program = model.compiled(Domain::Device, 1, BatchSiblings::WithinScopes);
  EXPECT_EQ(joined_layers(*program), 1);
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
  EXPECT_EQ(count_ops(*program, "braid.ReluHeadGrad"), 1);
  expect_same_values(model, *program);
}

TEST(FuseHeadsTest, ExpertsAreWrittenAndTheirGradientsReadWhereGatesMixThem) {
  const Differentiated model = mixture();
  const auto program = model.compiled(Domain::Device, 1, BatchSiblings::WithinScopes);
  EXPECT_EQ(joined_layers(*program), 1);
  EXPECT_EQ(count_ops(*program, "braid.JoinedReluBiasGrad"), 1);
  EXPECT_EQ(count_ops(*program, "braid.ReluHeadGrad"), 1) << "of the lanes of all tasks";
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
  expect_same_values(model, *program);
}

TEST(FuseHeadsTest, WhatIsOnHandSetStreamsStaysThere) {
  const Differentiated model = towers(8, 4);
  const auto program = model.compiled(Domain::Device, 4, BatchSiblings::WithinScopes);
  EXPECT_EQ(joined_layers(*program), 0);
  EXPECT_EQ(count_ops(*program, "braid.ReluHeadGrad"), 0) << "the head is on stream 0";
  expect_same_values(model, *program);
}

/// The value behind the fetched gradient of this shape.
ValueRef gradient_of_shape(const Differentiated& model, const Shape& shape) {
  for (const std::string& fetch : model.fetches) {
    const Node& seen = model.graph.node(model.graph.find(fetch));
    if (model.graph.info(seen.inputs[0]).shape == shape) return seen.inputs[0];
  }
  ADD_FAILURE() << "no gradient " << shape.to_string();
  return {};
}

/// The node of the program's one op of this kind.
const Node& node_of(const Program& program, const std::string& op) {
  EXPECT_EQ(count_ops(program, op), 1) << op;
  const auto at = std::find_if(program.ops.begin(), program.ops.end(),
                               [&](const ProgramOp& made) { return made.op == op; });
  return program.graph.node(at->node);
}

TEST(FuseHeadsTest, WhatIsColocatedWithAGradientIsWithTheNodeThatMakesIt) {
  Differentiated model = network();
  model.look_at("beside", {model.graph.find("x"), 0}, gradient_of_shape(model, {8, 1}).node);
  const auto program = model.compiled();
  const Graph& graph = program->graph;
  EXPECT_EQ(graph.node(graph.find("beside")).colocate_with, node_of(*program, "braid.ReluHeadGrad").id);
}

TEST(FuseHeadsTest, GradientsFollowLayersThatAreWrittenSideBySide) {
  const auto program = mixture().compiled(Domain::Device, 1, BatchSiblings::WithinScopes);
  const Node& gradient = node_of(*program, "braid.JoinedReluBiasGrad");
  ASSERT_NE(gradient.forward_of, kNoNode);
  const Node& layer = program->graph.node(gradient.forward_of);
  EXPECT_FALSE(layer.removed);
  EXPECT_TRUE(layer.attrs.get<bool>("joined", false)) << layer.name;
}

TEST(FuseHeadsTest, AHeadThatIsMadeOfItsGradientWaitsForIt) {
  GraphBuilder b;
  const Output g = b.placeholder("g", DType::Float32, Shape{kHeadRows, 1}),
               w = b.placeholder("w", DType::Float32, Shape{8, 1}),
               y = b.placeholder("y", DType::Float32, Shape{kHeadRows, 8});
  const Output dw = b.op("MatMul", {y, g}, {{"transpose_a", true}, {"transpose_b", false}});
  const Output dy =
      b.op("MatMul", {g, b.op("Sub", {w, dw})}, {{"transpose_a", false}, {"transpose_b", true}});
  const Output dz = b.op("ReluGrad", {dy, y}), db = b.op("BiasAddGrad", {dz});
  Differentiated model{import_graph(b.graph()),
                       {{"g", random_floats({kHeadRows, 1}, 1)},
                        {"w", random_floats({8, 1}, 2)},
                        {"y", random_floats({kHeadRows, 8}, 3)}},
                       {}};
  for (const Output& value : {dz, db})
    model.look_at(value.node + "/seen", model.graph.parse_value(value.name()));
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "braid.ReluHeadGrad"), 1);
  EXPECT_EQ(count_ops(*program, "MatMul"), 1);
  expect_same_values(model, *program);
}

TEST(FuseHeadsTest, KernelsTakeLanesOfAnyNumberOfRows) {
  constexpr std::int64_t kLanes = 8, kMany = 1 << 20;
  const auto supports = [](const char* op, bool joined, const Shape& y) {
    Node node;
    node.op = &OpRegistry::global().require(op);
    node.attrs.set("joined", joined);
    const std::vector<OutputInfo> inputs(node.op->min_inputs, {DType::Float32, y});
    return node.op->cuda_supports(node, inputs);
  };
  if (!OpRegistry::global().require("braid.ReluBiasGrad").cuda) GTEST_SKIP() << missing::kCudaKernels;
  EXPECT_TRUE(supports("braid.ReluBiasGrad", false, {kLanes, kMany, 4}));
  EXPECT_TRUE(supports("braid.JoinedReluBiasGrad", false, {kMany, kLanes, 4}));
  EXPECT_TRUE(supports("braid.ReluHeadGrad", false, {kLanes, kMany, 4}));
  EXPECT_TRUE(supports("braid.ReluHeadGrad", true, {kMany, kLanes, 4}));
  EXPECT_FALSE(supports("braid.ReluHeadGrad", true, {kLanes, kMany, 4})) << "a grid has no room for them";
}

TEST(FuseHeadsTest, HostProgramsKeepTheirNodes) {
  const auto program = towers(8).compiled(Domain::Host);
  EXPECT_EQ(count_ops(*program, "braid.ReluHeadGrad") + joined_layers(*program), 0);
}

/// x [8, 4, 8] w + b, whose rows are read by another product, or only by a Tanh.
Differentiated rows_of_sequences(bool apart) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{8, 4, 8});
  const auto sized = [&](const Output& value, const std::vector<std::int32_t>& sizes) {
    const auto rank = static_cast<std::int64_t>(sizes.size());
    return b.op("Reshape", {value, b.constant(Tensor::from<std::int32_t>({rank}, sizes))});
  };
  const Output rows = b.matmul(sized(x, {32, 8}), b.read(b.variable("w", Shape{8, 16}, {})));
  Output y = b.op("AddV2", {b.read(b.variable("b", Shape{16}, {})), sized(rows, {8, 4, 16})});
  if (apart) y = b.op("BatchMatMulV2", {y, y}, {{"adj_y", true}});
  return differentiated(b, b.reduce_mean(b.op("Tanh", {y})), {{"x", random_floats({8, 4, 8}, 1)}});
}

TEST(FuseTest, ABiasIsAddedByTheProductWhereNoRegionWouldAddIt) {
  for (const bool apart : {true, false})
    for (const bool regions : {true, false}) {
      const Differentiated model = rows_of_sequences(apart);
      CompileRequest request;
      request.feeds = {{"x", DType::Float32, Shape{8, 4, 8}}};
      request.fetches = model.fetches;
      CompileOptions options;
      options.domain = Domain::Device;
      options.fusion = regions;
      const auto program = compile(model.graph, request, options);
      EXPECT_EQ(count_ops(*program, "braid.FusedMatMul"), apart || !regions ? 1 : 0);
      if (!regions) expect_same_values(model, *program);
    }
}

}  // namespace
}  // namespace braid::testing
