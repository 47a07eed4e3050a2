// The gradients of a layer of a few inputs in one node, on a device: variables become what they become
// without.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/builder/graph_builder.h"
#include "engine/exec/program.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/exec/towers.h"
#include "tests/engine/testing/interpreter.h"

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

std::shared_ptr<const Program> compiled(const Towers& model, Domain domain = Domain::Device) {
  CompileOptions options;
  options.domain = domain;
  return compile(model.graph, model.request, options);
}

std::map<std::string, Tensor> after_a_step(const Graph& graph, const Towers& model) {
  Interpreter interpreter(graph);
  interpreter.params().learning_rate = 0.5F;
  unsigned seed = 1;
  for (const VariableInfo& variable : list_variables(model.graph))
    interpreter.variables()[variable.name] = random_floats(variable.shape, seed++);
  std::vector<std::string> updates;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!graph.node(id).removed && graph.node(id).op->side_effect) updates.push_back(graph.node(id).name);
  interpreter.run({{"x", random_floats(model.request.feeds[0].shape, 9)}}, {}, updates);
  return interpreter.variables();
}

TEST(FuseInputGradientsTest, VariablesBecomeWhatTheyBecomeWithout) {
  const Towers model = network(13);
  const auto program = compiled(model);
  EXPECT_EQ(count_ops(*program, "braid.ReluInputGrad"), 1);
  EXPECT_EQ(count_ops(*program, "braid.ReluBiasGrad"), 1) << "of the layer above";
  const auto expected = after_a_step(model.graph, model), got = after_a_step(program->graph, model);
  for (const VariableInfo& variable : list_variables(model.graph)) {
    const Tensor &e = expected.at(variable.name), &g = got.at(variable.name);
    for (std::size_t i = 0; i < e.data<float>().size(); ++i)
      ASSERT_NEAR(e.data<float>()[i], g.data<float>()[i], 1e-5 * (1 + std::abs(e.data<float>()[i])))
          << variable.name << " " << i;
  }
}

TEST(FuseInputGradientsTest, OtherLayersKeepTheirGradients) {
  const auto fused = [](const Towers& model, Domain domain = Domain::Device) {
    return count_ops(*compiled(model, domain), "braid.ReluInputGrad");
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
  EXPECT_EQ(count_ops(*compiled(model), "braid.ReluInputGrad"), 0);
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
