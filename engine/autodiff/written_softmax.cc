#include "engine/autodiff/written_softmax.h"

#include <initializer_list>
#include <string_view>

#include "engine/ir/op.h"

namespace braid {
namespace {

bool is_op(const Node& node, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (node.op->name == name) return true;
  return false;
}

/// Behind nodes whose value is their input's.
ValueRef passed_on(const Graph& graph, ValueRef value) {
  while (is_op(graph.node(value.node), {"Identity", "StopGradient"}))
    value = graph.node(value.node).inputs[0];
  return value;
}

/// What the node reduces over its last axis alone, which stays as one.
ValueRef over_last_axis(const Graph& graph, ValueRef value, std::string_view op) {
  const Node& node = graph.node(value.node);
  if (!is_op(node, {op}) || !node.attrs.get("keep_dims", false)) return {};
  const Shape& shape = graph.info(node.inputs[0]).shape;
  const Tensor* const axes = graph.known_value(node.inputs[1]);
  if (!axes || axes->elements() != 1) return {};
  const std::int64_t axis = tensor_to_int64s(*axes)[0];
  const bool is_last = axis == -1 || (shape.has_rank() && axis == shape.rank() - 1);
  return is_last ? node.inputs[0] : ValueRef{};
}

/// x of exp(x - max(x)).
ValueRef exponent(const Graph& graph, ValueRef exponential) {
  const Node& exp = graph.node(exponential.node);
  const Node& sub = graph.node(passed_on(graph, exp.inputs[0]).node);
  if (!is_op(sub, {"Sub"})) return {};
  const ValueRef of = over_last_axis(graph, passed_on(graph, sub.inputs[1]), "Max");
  return of.valid() && passed_on(graph, of) == passed_on(graph, sub.inputs[0]) ? sub.inputs[0] : ValueRef{};
}

/// x where the node is softmax(x).
ValueRef softmax_of(const Graph& graph, const Node& node) {
  if (!is_op(node, {"RealDiv"})) return {};
  const ValueRef exponential = passed_on(graph, node.inputs[0]);
  if (!is_op(graph.node(exponential.node), {"Exp"})) return {};
  const ValueRef summed = over_last_axis(graph, passed_on(graph, node.inputs[1]), "Sum");
  if (!summed.valid() || passed_on(graph, summed) != exponential) return {};
  const ValueRef x = exponent(graph, exponential);
  const bool has_rank = x.valid() && graph.info(x).shape.has_rank() && graph.info(x).shape.rank() > 0;
  return has_rank ? x : ValueRef{};
}

}  // namespace

int join_written_softmax(Graph& graph) {
  int joined = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).removed) continue;
    const ValueRef x = softmax_of(graph, graph.node(id));
    if (!x.valid()) continue;
    Node& node = graph.mutable_node(id);
    node.op = &OpRegistry::global().require("Softmax");
    node.inputs = {x};
    ++joined;
  }
  return joined;
}

}  // namespace braid
