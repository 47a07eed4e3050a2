// Gradient descent as the last step of a product, on a device: variables become what they become without.
#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kBatch = 16;

/// Layers of 100, `wide`, 96 and 2 columns, trained.
Towers network(OptimizerKind optimizer, std::int64_t examples = kBatch, std::int64_t wide = 400) {
  Towers made;
  GraphBuilder b;
  made.request.feeds = {{"x", DType::Float32, Shape{examples, 100}}};
  Output x = b.placeholder("x", DType::Float32, Shape{examples, 100});
  x = b.dense("a", x, 100, wide, true);
  x = b.dense("b", x, wide, 96, true);
  x = b.dense("c", x, 96, 2, false);
  const Output loss = b.reduce_mean(b.mul(x, x));
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  add_training(made, optimizer);
  return made;
}

TEST(FuseUpdatesTest, LargeProductsUpdateTheirVariablesThemselves) {
  const Towers model = network(OptimizerKind::Sgd);
  const auto program = compile_for(model);
  EXPECT_EQ(count_ops(*program, "braid.ProductUpdate"), 2);
  EXPECT_EQ(count_ops(*program, "braid.DescentScale"), 1);
  expect_variables_of_a_step(model, *program);
}

TEST(FuseUpdatesTest, OtherOptimizersAndHostProgramsKeepTheirGradients) {
  EXPECT_EQ(count_ops(*compile_for(network(OptimizerKind::Momentum)), "braid.ProductUpdate"), 0);
  EXPECT_EQ(count_ops(*compile_for(network(OptimizerKind::Sgd), Domain::Host), "braid.ProductUpdate"), 0);
}

TEST(FuseUpdatesTest, UpdatesFollowTheirLayersAndTakeWhatIsColocatedWithTheirGradients) {
  Towers model = network(OptimizerKind::Sgd);
  Node beside;
  beside.name = "beside";
  beside.op = &OpRegistry::global().require("Square");
  beside.inputs = {{model.graph.find("x"), 0}};
  beside.colocate_with = model.graph.node(model.graph.find("update/a/kernel")).inputs[1].node;
  model.graph.add(std::move(beside));
  model.request.fetches.push_back("beside");
  const auto program = compile_for(model);
  const Graph& graph = program->graph;
  const Node& update = graph.node(graph.find("update/a/kernel/product"));
  EXPECT_EQ(graph.node(graph.find("beside")).colocate_with, update.id);
  ASSERT_NE(update.forward_of, kNoNode);
  const Node& layer = graph.node(update.forward_of);
  EXPECT_EQ(layer.op->name, "braid.FusedMatMul");
  EXPECT_EQ(layer.name.substr(0, 2), "a/");
  EXPECT_FALSE(layer.removed);
}

TEST(FuseUpdatesTest, LongSumsOfFewOutputsKeepTheirGradients) {
  EXPECT_EQ(count_ops(*compile_for(network(OptimizerKind::Sgd, 512)), "braid.ProductUpdate"), 0);
  EXPECT_EQ(count_ops(*compile_for(network(OptimizerKind::Sgd, 512, 64 * 128)), "braid.ProductUpdate"), 2);
}

TEST(FuseUpdatesTest, AGradientThatIsReadStays) {
  Towers model = network(OptimizerKind::Sgd);
  const Node& update = model.graph.node(model.graph.find("update/a/kernel"));
  model.request.fetches.push_back(model.graph.value_name(update.inputs[1]));
  EXPECT_EQ(count_ops(*compile_for(model), "braid.ProductUpdate"), 1);
}

}  // namespace
}  // namespace braid::testing
