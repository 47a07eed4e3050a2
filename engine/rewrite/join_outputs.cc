#include <optional>
#include <vector>

#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// Whether it is [lanes, m, n] as [m, lanes, n], or the other way.
bool swaps_lanes(const Rewrite& r, const Node& node) {
  static const Pattern transpose{"Transpose"};
  if (node.removed || !transpose.names(node) || !is_plain(r.plan, node) ||
      node.outputs[0].shape.rank() != 3 || !node.outputs[0].shape.is_static())
    return false;
  const Tensor* order = r.graph.known_value(node.inputs[1]);
  return order && tensor_to_int64s(*order) == std::vector<std::int64_t>{1, 0, 2};
}

/// Whether `id` is the gradient of the layer, of a dy that is moved for nobody else.
bool reads_moved_gradient(const Rewrite& r, NodeId id, ValueRef layer) {
  static const Pattern layer_gradient{"braid.ReluBiasGrad"};
  const Node& gradient = r.node(id);
  if (!layer_gradient.names(gradient) || gradient.inputs[1] != layer || !is_plain(r.plan, gradient))
    return false;
  const NodeId dy = gradient.inputs[0].node;
  return swaps_lanes(r, r.node(dy)) && r.is_for_one(dy) && together(r.node(dy), gradient);
}

/// The layer's gradients, all of which can be read where they are.
std::optional<std::vector<NodeId>> find_moved_layer(const Rewrite& r, const Match& match) {
  const Node &moved = r.node(match[0]), &layer = r.node(match[1]);
  if (!swaps_lanes(r, moved) || !is_inner(r.plan, layer.id) || !together(layer, moved) ||
      layer.attrs.get<bool>("joined", false))
    return std::nullopt;
  std::vector<NodeId> gradients;
  for (const NodeId user : r.users.of(layer.id)) {
    if (user == moved.id) continue;
    if (!reads_moved_gradient(r, user, {layer.id, 0})) return std::nullopt;
    gradients.push_back(user);
  }
  return gradients;
}

void build_joined(Rewrite& r, const Match& match, const std::vector<NodeId>& gradients) {
  Node joined = r.node(match[1]);
  joined.attrs.set("joined", true);
  const NodeId made = replace(r.plan, match[0], std::move(joined), "/joined");
  take_place(r.plan, match[1], made);
  for (const NodeId gradient : gradients) {
    Node reads = r.node(gradient);
    reads.op = &OpRegistry::global().require("braid.JoinedReluBiasGrad");
    const NodeId dy = reads.inputs[0].node;
    reads.inputs = {r.node(dy).inputs[0], {made, 0}};
    take_place(r.plan, dy, replace(r.plan, gradient, std::move(reads), "/joined"));
  }
}

}  // namespace

void join_outputs(Plan& plan) {
  run_rules(plan,
            {.rules = {{"joined lanes of a layer", Pattern{"Transpose"}.reading(0, {"braid.FusedMatMul"}),
                        find_moved_layer, build_joined}},
             .text = [](const std::vector<int>& applied) {
               return "lanes of " + std::to_string(applied[0]) + " layers are written side by side";
             }});
}

}  // namespace braid
