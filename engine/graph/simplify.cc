// Leaves out nodes that do nothing for these shapes: an op whose output equals its input when both have one
// type and shape (OpDef::same_shape_identity), such as a sum that undoes a broadcast which did not happen.
// Their users take the input instead; a node with control inputs stays, for its order.
#include "engine/graph/passes.h"
#include "engine/ir/op.h"

namespace braid {

void simplify(Plan& plan) {
  Graph& graph = plan.program.graph;
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    const int input = node.op->same_shape_identity;
    if (input < 0 || !node.control_inputs.empty() || plan.is_fed(node)) continue;
    const ValueRef from = node.inputs[static_cast<std::size_t>(input)];
    const OutputInfo &before = graph.info(from), &after = node.outputs[0];
    if (before.dtype == after.dtype && before.shape == after.shape && before.shape.is_static())
      graph.replace_uses({id, 0}, from);
  }
}

}  // namespace braid
