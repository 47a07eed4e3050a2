#include "worker/model/loss_of_values.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

const std::set<std::string> kDistances{"Abs", "Pow", "Square", "SquaredDifference", "L2Loss"};
const std::set<std::string> kBetween{
    "Add",        "AddN",    "AddV2",        "BroadcastTo",  "Cast",    "Div",       "DivNoNan",
    "ExpandDims", "Greater", "GreaterEqual", "Identity",     "Less",    "LessEqual", "Mean",
    "Minimum",    "Mul",     "Neg",          "Pack",         "RealDiv", "Reshape",   "Select",
    "SelectV2",   "Sqrt",    "Squeeze",      "StopGradient", "Sub",     "Sum"};

const std::set<std::string> kOfLogits{"Log1p",    "LogSigmoid",
                                      "Sigmoid",  "SigmoidCrossEntropyWithLogits",
                                      "Softplus", "braid.SigmoidCrossEntropy"};

/// The nodes that `to` needs the values of, and that need those of `from`.
std::vector<NodeId> nodes_between(const Graph& graph, NodeId from, NodeId to) {
  enum class Seen : char { No, Open, Apart, Between };
  std::vector<Seen> seen(static_cast<std::size_t>(graph.size()), Seen::No);
  const auto of = [&](NodeId id) -> Seen& { return seen[static_cast<std::size_t>(id)]; };
  std::vector<NodeId> between;
  std::vector<std::pair<NodeId, std::size_t>> open{{to, 0}};
  of(from) = Seen::Between;
  of(to) = Seen::Open;
  while (!open.empty()) {
    auto& [id, next] = open.back();
    const auto& inputs = graph.node(id).inputs;
    if (next < inputs.size()) {
      const std::size_t place = next++;
      const NodeId input = inputs[place].node;
      if (of(input) != Seen::No || reads_shape_only(graph.node(id), place)) continue;
      of(input) = Seen::Open;
      open.emplace_back(input, 0);
      continue;
    }
    of(id) = Seen::Apart;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (of(inputs[i].node) == Seen::Between && !reads_shape_only(graph.node(id), i)) of(id) = Seen::Between;
    if (of(id) == Seen::Between) between.push_back(id);
    open.pop_back();
  }
  return between;
}

}  // namespace

bool is_loss_of_values(const Graph& graph, ValueRef prediction, ValueRef loss) {
  if (prediction.node == loss.node) return false;
  const std::vector<NodeId> between = nodes_between(graph, prediction.node, loss.node);
  const std::set<NodeId> all(between.begin(), between.end());
  bool compares = false;
  for (const NodeId id : between) {
    const Node& node = graph.node(id);
    const std::string& op = node.op->name;
    const bool squares = op == "Mul" && node.inputs[0] == node.inputs[1];
    // Of a quantile's two sides; with a constant it is a hinge.
    const bool sides =
        op == "Maximum" && all.contains(node.inputs[0].node) && all.contains(node.inputs[1].node);
    if (kDistances.contains(op) || squares || sides)
      compares = true;
    else if (!kBetween.contains(op))
      return false;
  }
  return compares;
}

bool is_loss_of_logits(const Graph& graph, ValueRef prediction, NodeId label, ValueRef loss) {
  if (prediction.node == loss.node) return false;
  const std::vector<NodeId> of_label = nodes_between(graph, label, loss.node);
  std::set<NodeId> meets(of_label.begin(), of_label.end());
  meets.insert(label);
  const std::vector<NodeId> between = nodes_between(graph, prediction.node, loss.node);
  return std::any_of(between.begin(), between.end(), [&](NodeId id) {
    const Node& node = graph.node(id);
    return kOfLogits.contains(node.op->name) && !meets.contains(node.inputs[0].node);
  });
}

}  // namespace braid::worker
