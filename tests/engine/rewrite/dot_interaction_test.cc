// Gathered products of pairs of vectors become one node on a device, with their gradient, and mean the same.
#include <gtest/gtest.h>

#include <array>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "models/multi_branch.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/differentiated.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kExampleRows = 5, kVectors = 6, kVectorWidth = 8;

struct Interaction {
  Graph graph;
  std::vector<std::string> fetches;  // the loss and the gradient of the variable that all vectors come from
  std::string products;              // of all pairs
};

Interaction make_interaction(const std::vector<std::int32_t>& pairs) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{kExampleRows, kVectors * kVectorWidth});
  const Output w = b.variable("w", Shape{kVectors * kVectorWidth}, {});
  const Output all = b.reshape(b.mul(x, b.read(w)), {-1, kVectors, kVectorWidth});
  const Output dots = b.op("BatchMatMulV2", {all, all}, {{"adj_x", false}, {"adj_y", true}}, "dots");
  const auto count = static_cast<std::int64_t>(pairs.size());
  const Output chosen = b.op("GatherV2", {b.reshape(dots, {-1, kVectors * kVectors}),
                                          b.constant(Tensor::from<std::int32_t>(Shape{count}, pairs)),
                                          b.constant(Tensor::scalar<std::int32_t>(1))});
  const Output loss = b.reduce_mean(b.op("Square", {chosen}));
  Interaction made{import_graph(b.graph()), {loss.name()}, dots.name()};
  for (const VariableGradient& gradient : add_gradients(made.graph, made.graph.parse_value(loss.name())))
    made.fetches.push_back(made.graph.value_name(gradient.dense));
  return made;
}

const std::vector<std::int32_t> kBelowDiagonal = {6, 12, 13, 18, 19, 20, 24, 25, 26, 27, 30, 31, 32, 33, 34};

std::shared_ptr<const Program> compiled(const Interaction& made, std::vector<std::string> fetches,
                                        Domain domain = Domain::Device) {
  CompileOptions options;
  options.domain = domain;
  return compile(
      made.graph,
      {{{"x", DType::Float32, Shape{kExampleRows, kVectors * kVectorWidth}}}, std::move(fetches), {}},
      options);
}

TEST(FusePairDotsTest, GatheredProductsAndTheirGradientAreANodeEach) {
  const Interaction made = make_interaction(kBelowDiagonal);
  const auto program = compiled(made, made.fetches);
  EXPECT_EQ(count_ops(*program, "braid.PairDots"), 1);
  EXPECT_EQ(count_ops(*program, "braid.PairDotsGrad"), 1);
  for (const char* gone : {"BatchMatMulV2", "GatherV2", "braid.GatherGrad", "AddN"})
    EXPECT_EQ(count_ops(*program, gone), 0) << gone;

  const Tensor x = random_floats(Shape{kExampleRows, kVectors * kVectorWidth}, 1),
               w = random_floats(Shape{kVectors * kVectorWidth}, 2);
  const auto run = [&](const Graph& graph, const std::vector<std::string>& fetches) {
    Interpreter interpreter(graph);
    interpreter.variables()["w"] = w;
    return interpreter.run({{"x", x}}, fetches);
  };
  const std::vector<Tensor> expected = run(made.graph, made.fetches), got = run(program->graph, made.fetches);
  ASSERT_EQ(got.size(), 2U);
  for (std::size_t f = 0; f < got.size(); ++f) {
    ASSERT_EQ(got[f].shape(), expected[f].shape());
    for (std::size_t i = 0; i < got[f].data<float>().size(); ++i)
      EXPECT_NEAR(got[f].data<float>()[i], expected[f].data<float>()[i], 1e-5F) << f << ", " << i;
  }
}

/// Tables beside dense columns, whose vector is among those of the interaction and beside their products.
Differentiated interaction_beside_columns() {
  constexpr std::int64_t kTables = 3, kTableRows = 20;
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kExampleRows, 13}, 1)},
                                                    {"y", random_floats({kExampleRows}, 2)}};
  std::vector<Output> ids;
  for (std::int64_t t = 0; t < kTables; ++t) {
    feeds.emplace_back("ids" + std::to_string(t),
                       Tensor::from<std::int32_t>(Shape{kExampleRows}, std::array{1, 5, 5, 0, 19}));
    ids.push_back(b.placeholder(feeds.back().first, DType::Int32, Shape{kExampleRows}));
  }
  const Output dense = b.placeholder("x", DType::Float32, Shape{kExampleRows, 13});
  const Output label = b.placeholder("y", DType::Float32, Shape{kExampleRows});
  const Output loss = build_dlrm_branches(b, dense, 13, ids, kTableRows, kVectorWidth, label, 0);
  return differentiated(b, loss, std::move(feeds));
}

TEST(FusePairDotsTest, ColumnsThatAreAVectorTooAreAddedToItsGradient) {
  const Differentiated model = interaction_beside_columns();
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "braid.PairDotsGrad"), 1);
  for (const char* gone : {"AddN", "braid.SplitLike"}) EXPECT_EQ(count_ops(*program, gone), 0) << gone;
  expect_same_values(model, *program);
}

TEST(FusePairDotsTest, ColumnsAreNotAddedToAGradientThatAnotherReads) {
  Differentiated model = interaction_beside_columns();
  const int nodes = model.graph.size();
  for (NodeId id = 0; id < nodes; ++id) {
    const Node& node = model.graph.node(id);
    if (node.op->name == "AddN" && model.graph.node(node.inputs[0].node).op->name == "Unpack")
      model.look_at("of_products", node.inputs[0]);
    else if (node.op->name == "AddN" && model.graph.node(node.inputs[1].node).op->name == "Unpack")
      model.look_at("of_products", node.inputs[1]);
  }
  ASSERT_NE(model.graph.find("of_products"), kNoNode);
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "braid.PairDotsGrad"), 1);
  EXPECT_EQ(count_ops(*program, "AddN"), 1);
  expect_same_values(model, *program);
}

TEST(FusePairDotsTest, WhatSomebodyElseReadsOrTheKernelsDoNotTakeIsLeftAlone) {
  const Interaction made = make_interaction(kBelowDiagonal);
  EXPECT_EQ(count_ops(*compiled(made, {made.fetches[0], made.products}), "braid.PairDots"), 0);
  EXPECT_EQ(count_ops(*compiled(made, made.fetches, Domain::Host), "braid.PairDots"), 0);
  for (const std::vector<std::int32_t>& twice : {std::vector<std::int32_t>{6, 12, 6}, {6, 1}}) {
    const Interaction repeated = make_interaction(twice);
    EXPECT_EQ(count_ops(*compiled(repeated, repeated.fetches), "braid.PairDots"), 0);
  }
}

TEST(FusePairDotsTest, WithoutAGradientTheProductsAreFusedAlone) {
  const Interaction made = make_interaction(kBelowDiagonal);
  const auto program = compiled(made, {made.fetches[0]});
  EXPECT_EQ(count_ops(*program, "braid.PairDots"), 1);
  EXPECT_EQ(count_ops(*program, "braid.PairDotsGrad"), 0);
}

}  // namespace
}  // namespace braid::testing
