// Gradients of layers that lie as the products that sum over their rows like it, on a device: variables
// become what they become without.
#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/ops/fused/relu_bias_grad.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kLayerWidth = 1024;  // 64 tiles of outputs in the gradient of a kernel

/// Three layers, the last one of `last` columns without ReLU, trained on `examples` rows.
Towers network(std::int64_t examples, OptimizerKind optimizer, std::int64_t last = 1,
               std::int64_t width = kLayerWidth) {
  Towers made;
  GraphBuilder b;
  made.request.feeds = {{"x", DType::Float32, Shape{examples, width}}};
  Output x = b.placeholder("x", DType::Float32, Shape{examples, width});
  x = b.dense("a", x, width, width, true);
  x = b.dense("b", x, width, width, true);
  x = b.dense("c", x, width, last, false);
  const Output loss = b.reduce_mean(b.mul(x, x));
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  add_training(made, optimizer);
  return made;
}

/// Of the node that makes the gradient of this layer.
GradLayout layout_of(const Program& program, const std::string& layer) {
  for (const ProgramOp& op : program.ops) {
    if (op.op.find("Relu") == std::string::npos || op.op.find("Grad") == std::string::npos) continue;
    const Node& node = program.graph.node(op.node);
    const NodeId forward = node.inputs.back().node;
    if (program.graph.node(forward).name.starts_with(layer + "/")) return grad_layout(node);
  }
  ADD_FAILURE() << "no gradient of layer " << layer;
  return GradLayout::Rows;
}

TEST(ColumnGradientsTest, RowsThatNobodyReadsAreNotWritten) {
  for (const OptimizerKind optimizer : {OptimizerKind::Sgd, OptimizerKind::Momentum}) {
    const Towers model = network(512, optimizer, 2);
    const auto program = compile_for(model);
    EXPECT_EQ(layout_of(*program, "a"), GradLayout::Columns);
    EXPECT_EQ(layout_of(*program, "b"), GradLayout::Rows) << "a short sum, and the layer below reads rows";
    expect_variables_of_a_step(model, *program, ErrorOf::LargestOfItsVariable);
  }
}

TEST(ColumnGradientsTest, LongSumsReadColumnsBesideTheRowsOfTheLayerBelow) {
  for (const std::int64_t last : {1, 2}) {  // a head of one output is fused with the gradient
    const Towers model = network(4096, OptimizerKind::Sgd, last);
    const auto program = compile_for(model);
    EXPECT_EQ(layout_of(*program, "a"), GradLayout::Columns);
    EXPECT_EQ(layout_of(*program, "b"), GradLayout::Both);
    expect_variables_of_a_step(model, *program, ErrorOf::LargestOfItsVariable);
  }
}

TEST(ColumnGradientsTest, ShortSumsAndFewOutputsGainNothing) {
  EXPECT_EQ(layout_of(*compile_for(network(508, OptimizerKind::Sgd)), "a"), GradLayout::Rows);
  const auto odd = compile_for(network(1026, OptimizerKind::Sgd));
  EXPECT_EQ(layout_of(*odd, "a"), GradLayout::Rows) << "rows of dz^T would not be aligned";
  EXPECT_EQ(layout_of(*compile_for(network(1024, OptimizerKind::Sgd, 1, 512)), "a"), GradLayout::Rows);
}

TEST(ColumnGradientsTest, HostProgramsKeepRows) {
  const auto program = compile_for(network(1024, OptimizerKind::Sgd), Domain::Host);
  for (const ProgramOp& op : program->ops)
    EXPECT_EQ(grad_layout(program->graph.node(op.node)), GradLayout::Rows);
}

}  // namespace
}  // namespace braid::testing
