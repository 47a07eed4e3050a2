// Leaves out nodes that do nothing for these shapes: an op whose output equals its input when both have one
// type and shape (OpDef::same_shape_identity), such as a sum that undoes a broadcast which did not happen.
// Their users take the input instead; a node with control inputs stays, for its order. So does a choice
// between equal values, as the gates of conditionals are (engine/import/branch_gates.h).
#include <set>
#include <string_view>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

const std::set<std::string_view> kChoices{"Select", "SelectV2"};

/// Behind nodes that only pass it on, in its shape.
ValueRef made_as(const Plan& plan, ValueRef value) {
  const Graph& graph = plan.program.graph;
  for (;;) {
    const Node& node = graph.node(value.node);
    const bool passes = !node.op->views.empty() && node.inputs.size() == 1 && node.control_inputs.empty();
    if (!passes || plan.is_fed(node) || graph.info(node.inputs[0]).shape != graph.info(value).shape)
      return value;
    value = node.inputs[0];
  }
}

/// The input whose value the node has, or -1.
int same_as_input(const Plan& plan, const Node& node) {
  if (kChoices.contains(node.op->name) && made_as(plan, node.inputs[1]) == made_as(plan, node.inputs[2]))
    return 1;
  return node.op->same_shape_identity;
}

}  // namespace

void simplify(Plan& plan) {
  Graph& graph = plan.program.graph;
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    const int input = same_as_input(plan, node);
    if (input < 0 || !node.control_inputs.empty() || plan.is_fed(node)) continue;
    const ValueRef from = node.inputs[static_cast<std::size_t>(input)];
    const OutputInfo &before = graph.info(from), &after = node.outputs[0];
    if (before.dtype == after.dtype && before.shape == after.shape && before.shape.is_static())
      graph.replace_uses({id, 0}, from);
  }
}

}  // namespace braid
