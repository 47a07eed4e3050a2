#include "tests/engine/ops/known_values.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

/// The op's node, whose inputs are known.
NodeId add_op(Graph& graph, const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs) {
  Node node;
  node.name = "op";
  node.op = &OpRegistry::global().require(op);
  node.attrs = std::move(attrs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    node.inputs.push_back(add_known(graph, "input" + std::to_string(i), inputs[i]));
  return graph.add(std::move(node));
}

Tensor value_of(const Graph& graph, ValueRef output) {
  const Tensor* value = graph.known_value(output);
  if (!value) throw Internal("not known");
  EXPECT_EQ(graph.info(output).shape, value->shape())
      << graph.node(output.node).op->name << ":" << output.output;
  return *value;
}

}  // namespace

std::vector<Tensor> known_outputs(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs) {
  Graph graph;
  const NodeId id = add_op(graph, op, inputs, std::move(attrs));
  std::vector<Tensor> values;
  for (int o = 0; o < static_cast<int>(graph.node(id).outputs.size()); ++o)
    values.push_back(value_of(graph, {id, o}));
  return values;
}

Tensor known(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs, int output) {
  Graph graph;
  const NodeId id = add_op(graph, op, inputs, std::move(attrs));
  return value_of(graph, {id, output});
}

std::string known_refusal(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs) {
  return message_of([&] {
    Graph graph;
    add_op(graph, op, inputs, std::move(attrs));
  });
}

}  // namespace braid::testing
