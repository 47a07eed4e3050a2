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

/// A product of a value, or of two equal differences, with itself.
bool is_square(const Graph& graph, const Node& product) {
  const ValueRef a = product.inputs[0], b = product.inputs[1];
  if (a == b) return true;
  const Node &left = graph.node(a.node), &right = graph.node(b.node);
  return left.op->name == "Sub" && right.op->name == "Sub" && left.inputs == right.inputs;
}

}  // namespace

bool is_loss_of_values(const Graph& graph, ValueRef prediction, ValueRef loss) {
  if (prediction.node == loss.node) return false;
  const std::vector<NodeId> between = nodes_between(graph, prediction.node, loss.node);
  const std::set<NodeId> all(between.begin(), between.end());
  bool compares = false, of_logarithms = false, of_powers = false, limited = false;
  for (const NodeId id : between) {
    const Node& node = graph.node(id);
    const std::string& op = node.op->name;
    const bool squares = op == "Mul" && is_square(graph, node);
    // Of a quantile's two sides; with a constant it is a hinge.
    const bool sides =
        op == "Maximum" && all.contains(node.inputs[0].node) && all.contains(node.inputs[1].node);
    const bool limits = op == "Maximum" && !sides;
    if (kDistances.contains(op) || squares || sides) {
      compares = true;
      of_powers = of_powers || op == "Pow" || op == "Abs";
    } else if (op == "Log" || op == "Log1p" || limits) {
      of_logarithms = of_logarithms || !limits;
      if (limits) limited = true;
    } else if (!kBetween.contains(op)) {
      return false;
    }
  }
  // A squared difference of logarithms; a focal loss has logarithms beside powers.
  return compares && (of_logarithms ? !of_powers : !limited);
}

bool is_loss_of_differences(const Graph& graph, ValueRef prediction, NodeId label, ValueRef loss) {
  if (prediction.node == loss.node) return false;
  const std::set<std::string> passes{"Cast",    "ExpandDims", "Identity", "Neg",
                                     "Reshape", "Squeeze",    "Transpose"};
  const std::vector<NodeId> between = nodes_between(graph, prediction.node, loss.node);
  const std::vector<NodeId> of_label = nodes_between(graph, label, loss.node);
  const std::set<NodeId> predicted(between.begin(), between.end());
  std::set<NodeId> truths(of_label.begin(), of_label.end()), plain{prediction.node};
  truths.insert(label);
  const auto is_truth = [&](ValueRef each) {
    return truths.contains(each.node) && !predicted.contains(each.node);
  };
  bool met = false;
  for (const NodeId id : between) {  // inputs before their users
    const Node& node = graph.node(id);
    const std::string& op = node.op->name;
    const auto reads = [&](ValueRef each) { return plain.contains(each.node); };
    if (std::none_of(node.inputs.begin(), node.inputs.end(), reads)) continue;
    const bool differs =
        (op == "Sub" || op == "SquaredDifference") && (is_truth(node.inputs[0]) || is_truth(node.inputs[1]));
    if (!differs && !passes.contains(op)) return false;
    if (!differs) plain.insert(id);
    met = met || differs;
  }
  return met;
}

bool is_loss_of_class_logits(const Graph& graph, ValueRef prediction, ValueRef loss) {
  if (prediction.node == loss.node) return false;
  std::vector<NodeId> between = nodes_between(graph, prediction.node, loss.node);
  const std::set<NodeId> all(between.begin(), between.end());
  return std::any_of(between.begin(), between.end(), [&](NodeId id) {
    const Node& node = graph.node(id);
    if (node.op->name != "SoftmaxCrossEntropyWithLogits") return false;
    return node.inputs[0].node == prediction.node || all.contains(node.inputs[0].node);
  });
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

bool is_compared(const Graph& graph, NodeId label) {
  const std::set<std::string> passes{"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "Transpose"};
  std::set<NodeId> same{label};
  bool compares = false;
  for (bool grows = true; grows;) {
    grows = false;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (node.removed || node.inputs.empty()) continue;
      const bool reads = same.contains(node.inputs[0].node) ||
                         (node.inputs.size() == 2 && same.contains(node.inputs[1].node));
      if (!reads) continue;
      const std::string& op = node.op->name;
      compares = compares || op.starts_with("Greater") || op.starts_with("Less");
      grows = (passes.contains(op) && same.insert(id).second) || grows;
    }
  }
  return compares;
}

}  // namespace braid::worker
