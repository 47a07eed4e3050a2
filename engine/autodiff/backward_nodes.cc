#include "engine/autodiff/backward_nodes.h"

#include <string>

#include "engine/ir/op.h"

namespace braid {

namespace {

bool fits_already(const Graph& graph, const OpDef& op, const std::vector<ValueRef>& inputs) {
  if (op.shape_like < 0) return false;
  const Shape& value = graph.info(inputs[0]).shape;
  return value.is_static() && value == graph.info(inputs[static_cast<std::size_t>(op.shape_like)]).shape;
}

}  // namespace

ValueRef BackwardNodes::add(NodeId forward, std::string_view op, std::vector<ValueRef> inputs,
                            AttrMap attrs) {
  const OpDef& made = OpRegistry::global().require(op);
  if (fits_already(graph_, made, inputs)) return inputs[0];
  const Node& from = graph_.node(forward);
  Node node;
  node.name = graph_.unique_name("gradients/" + from.name + "/" + std::string(op));
  node.op = &made;
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  node.device = from.device;
  node.forward_of = forward;
  if (from.include_grad) {
    node.stream = from.stream;
    node.colocate_with = from.colocate_with;
  }
  return {graph_.add(std::move(node)), 0};
}

ValueRef BackwardNodes::constant(NodeId forward, Tensor value) {
  const DType dtype = value.dtype();
  return add(forward, "Const", {}, {{"dtype", dtype}, {"value", std::move(value)}});
}

}  // namespace braid
