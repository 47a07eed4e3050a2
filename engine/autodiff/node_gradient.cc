#include "engine/autodiff/node_gradient.h"

#include "base/error.h"

namespace braid {

NodeGradient::NodeGradient(BackwardNodes& nodes, NodeId forward, std::vector<ValueRef> grads)
    : nodes_(nodes),
      node_(nodes.graph().node(forward)),
      grads_(std::move(grads)),
      results_(node_.inputs.size()) {
  for (const ValueRef input : node_.inputs) input_infos_.push_back(nodes.graph().info(input));
}

void NodeGradient::set_grad(int input, ValueRef gradient) {
  if (!gradient.valid()) return;
  check_dtype(input, gradient);
  const Shape& shape = nodes_.graph().info(gradient).shape;
  Shape merged;
  if (!merge_shapes(shape, input_info(input).shape, merged)) {
    throw Internal("[" + node_.op->name + "] node '" + node_.name + "': the gradient of input " +
                   std::to_string(input) + " has shape " + shape.to_string() + ", the input " +
                   input_info(input).shape.to_string());
  }
  results_.at(static_cast<std::size_t>(input)) = gradient;
}

void NodeGradient::set_grad(int input, IndexedSlices gradient) {
  check_dtype(input, gradient.values);
  results_.at(static_cast<std::size_t>(input)) = gradient;
}

void NodeGradient::check_dtype(int input, ValueRef gradient) const {
  const Graph& graph = nodes_.graph();
  const bool is_handle = input_info(input).dtype == DType::Resource;
  const DType expected = is_handle ? variable_of(graph, this->input(input)).dtype : input_info(input).dtype;
  const DType dtype = graph.info(gradient).dtype;
  if (dtype == expected) return;
  throw Internal("[" + node_.op->name + "] node '" + node_.name + "': the gradient of input " +
                 std::to_string(input) + " is " + std::string(dtype_name(dtype)) + ", the input " +
                 std::string(dtype_name(expected)));
}

ValueRef NodeGradient::op(std::string_view op, std::vector<ValueRef> inputs, AttrMap attrs) {
  return nodes_.add(node_.id, op, std::move(inputs), std::move(attrs));
}

ValueRef NodeGradient::constant(Tensor value) { return nodes_.constant(node_.id, std::move(value)); }

}  // namespace braid
