// The gradients of a layer of a few inputs in one node, on a device: variables become what they become
// without.
#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kExamples = 24;

/// A layer of `inputs` columns and two more, trained.
Towers network(std::int64_t inputs, bool relu = true) {
  Towers made;
  GraphBuilder b;
  made.request.feeds = {{"x", DType::Float32, Shape{kExamples, inputs}}};
  Output x = b.placeholder("x", DType::Float32, Shape{kExamples, inputs});
  x = b.dense("a", x, inputs, 40, relu);
  x = b.dense("b", x, 40, 12, true);
  x = b.dense("c", x, 12, 2, false);
  const Output loss = b.reduce_mean(b.mul(x, x));
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  add_training(made, OptimizerKind::Momentum);
  return made;
}

TEST(FuseInputGradientsTest, VariablesBecomeWhatTheyBecomeWithout) {
  const Towers model = network(13);
  const auto program = compile_for(model);
  EXPECT_EQ(count_ops(*program, "braid.ReluInputGrad"), 1);
  EXPECT_EQ(count_ops(*program, "braid.ReluBiasGrad"), 1) << "of the layer above";
  expect_variables_of_a_step(model, *program);
}

TEST(FuseInputGradientsTest, OtherLayersKeepTheirGradients) {
  const auto fused = [](const Towers& model, Domain domain = Domain::Device) {
    return count_ops(*compile_for(model, domain), "braid.ReluInputGrad");
  };
  EXPECT_EQ(fused(network(16)), 1);
  EXPECT_EQ(fused(network(17)), 0) << "more inputs than the kernel keeps sums of";
  EXPECT_EQ(fused(network(13, false)), 0) << "no ReLU";
  EXPECT_EQ(fused(network(13), Domain::Host), 0);
}

TEST(FuseInputGradientsTest, AGradientThatOthersReadStays) {
  Towers model = network(13);
  const auto dz_of = [&] {
    const Node& update = model.graph.node(model.graph.find("update/a/kernel"));
    for (const ValueRef input : update.inputs)
      if (const Node& product = model.graph.node(input.node); product.op->name == "MatMul")
        return product.inputs[1];
    ADD_FAILURE() << "no product";
    return ValueRef{};
  };
  model.request.fetches.push_back(model.graph.value_name(dz_of()));
  EXPECT_EQ(count_ops(*compile_for(model), "braid.ReluInputGrad"), 0);
}

TEST(FuseInputGradientsTest, NodesOnDifferentStreamsStayApart) {
  Towers model = network(13);
  const Node& update = model.graph.node(model.graph.find("update/a/kernel"));
  for (const ValueRef input : update.inputs)
    if (model.graph.node(input.node).op->name == "MatMul") model.graph.mutable_node(input.node).stream = 1;
  CompileOptions options;
  options.domain = Domain::Device;
  options.streams.count = 2;
  options.streams.policy = StreamPolicy::User;
  EXPECT_EQ(count_ops(*compile(model.graph, model.request, options), "braid.ReluInputGrad"), 0);
}

}  // namespace
}  // namespace braid::testing
