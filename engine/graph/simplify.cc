// Leaves out nodes that do nothing for these shapes: an op whose output equals its input when both have one
// type and shape (OpDef::same_shape_identity), such as a sum that undoes a broadcast which did not happen,
// and broadcasts in front of ops that broadcast themselves.
// Their users take the input instead; a node with control inputs stays, for its order. So does a choice
// between equal values, as the gates of conditionals are (engine/import/branch_gates.h).
#include <algorithm>
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

/// Whether all elements are zero and known, such as the bias that PyTorch's exporter gives a convolution that
/// has none. An element -0 that it is added to becomes 0 in the node, and stays -0 without it.
bool is_zero(const Plan& plan, ValueRef value) {
  static const std::set<std::string_view> kCopies{"BroadcastTo", "Reshape", "Identity"};
  const Graph& graph = plan.program.graph;
  const Node& node = graph.node(value.node);
  if (plan.is_fed(node)) return false;
  const Tensor* known = graph.known_value(value);
  if (!known) return kCopies.contains(node.op->name) && is_zero(plan, node.inputs[0]);
  if (known->dtype() != DType::Float32) return false;
  const auto numbers = known->data<float>();
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return x == 0; });
}

/// The input whose value the node has, or -1.
int same_as_input(const Plan& plan, const Node& node) {
  static const std::set<std::string_view> kSums{"AddV2", "Add", "BiasAdd"};
  if (kSums.contains(node.op->name) && is_zero(plan, node.inputs[1])) return 0;
  if (kChoices.contains(node.op->name) && made_as(plan, node.inputs[1]) == made_as(plan, node.inputs[2]))
    return 1;
  return node.op->same_shape_identity;
}

/// Operands that are repeated to the node's shape in front of it, as zeros_like and expand are, are read as
/// they were, where the op broadcasts and the others have this shape.
void read_unrepeated(Plan& plan, NodeId id) {
  static const std::set<std::string_view> kRepeats{"BroadcastTo"};
  Graph& graph = plan.program.graph;
  if (graph.node(id).op->traits.batching != Batching::Broadcasting) return;
  for (std::size_t i = 0; i < graph.node(id).inputs.size(); ++i) {
    const Node& node = graph.node(id);
    const Node& before = graph.node(node.inputs[i].node);
    if (!kRepeats.contains(before.op->name) || plan.is_fed(before) || !before.control_inputs.empty())
      continue;
    Shape all = graph.info(before.inputs[0]).shape, made;
    for (std::size_t other = 0; other < node.inputs.size() && all.is_static(); ++other) {
      if (other == i) continue;
      if (!broadcast_shapes(all, graph.info(node.inputs[other]).shape, made)) return;
      all = made;
    }
    const ValueRef source = before.inputs[0];
    if (all.is_static() && all == node.outputs[0].shape) graph.mutable_node(id).inputs[i] = source;
  }
}

}  // namespace

void simplify(Plan& plan) {
  Graph& graph = plan.program.graph;
  for (const NodeId id : graph.topological_order()) {
    read_unrepeated(plan, id);
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
