// A head of one output behind a layer (a logit) has a gradient dy = g w^T as large as the layer's output,
// which is only read to be masked and summed again, beside the same output that the gradient of w reads:
//   dy = MatMul(g [m, 1], w [n, 1], transpose_b), of lanes: BatchMatMulV2 with adj_y
//   dz, db = braid.ReluBiasGrad(dy, y), or Joined...     -> dz, db, dw = braid.ReluHeadGrad(g, w, y)
//   dw = MatMul(y, g, transpose_a), of lanes: with adj_x
// On a device: y is read once and dy never written. Left apart: gradients that others read, too, nodes on
// different hand-set streams, and a dw that w itself is made of.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& joined_layer() {
  static const Pattern pattern{"braid.JoinedReluBiasGrad"};
  return pattern;
}
const Pattern& product() {
  static const Pattern pattern{"MatMul", "BatchMatMulV2"};
  return pattern;
}
const Pattern& reshape() {
  static const Pattern pattern{"Reshape"};
  return pattern;
}

bool is_target(const Rewrite& r, NodeId id) {
  return std::find(r.plan.targets.begin(), r.plan.targets.end(), id) != r.plan.targets.end();
}

/// The value that this one is another view of.
ValueRef behind_views(const Rewrite& r, ValueRef value) {
  while (reshape().names(r.node(value.node)) && is_plain(r.plan, r.node(value.node)))
    value = r.node(value.node).inputs[0];
  return value;
}

/// op(a) op(b) of two matrices, or of lanes of them.
bool is_product(const Node& node, bool transpose_a, bool transpose_b) {
  if (!product().names(node)) return false;
  const MatrixProduct& form = node.op->product;
  return node.attrs.get<bool>(form.transpose_a, false) == transpose_a &&
         node.attrs.get<bool>(form.transpose_b, false) == transpose_b;
}

bool depends(const Rewrite& r, NodeId from, NodeId on) {
  std::set<NodeId> seen{from};
  std::vector<NodeId> open{from};
  while (!open.empty()) {
    const Node& node = r.node(open.back());
    open.pop_back();
    if (node.id == on) return true;
    for (const ValueRef input : node.inputs)
      if (seen.insert(input.node).second) open.push_back(input.node);
    for (const NodeId control : node.control_inputs)
      if (seen.insert(control).second) open.push_back(control);
  }
  return false;
}

/// Shapes that braid.ReluHeadGrad takes.
bool have_form(const Shape& g, const Shape& w, const Shape& y, bool joined) {
  if (!g.is_static() || !w.is_static() || !y.is_static()) return false;
  if (joined) return g == Shape{y[0], 1} && w == Shape{y[1] * y[2], 1};
  if (y.rank() == 2) return g == Shape{y[0], 1} && w == Shape{y[1], 1};
  return g == Shape{y[0], y[1], 1} && w == Shape{y[0], y[2], 1};
}

/// dw = y^T g, if there is one that may as well be computed here.
std::optional<NodeId> find_gradient_of_weights(const Rewrite& r, const Node& head) {
  const ValueRef g = head.inputs[0], w = head.inputs[1], y = head.inputs[2];
  for (const NodeId user : r.users.of(g.node)) {
    const Node& node = r.node(user);
    if (!is_product(node, true, false) || node.inputs[1] != g ||
        node.outputs[0].shape != r.graph.info(w).shape ||
        behind_views(r, node.inputs[0]) != behind_views(r, y) || !is_plain(r.plan, node) ||
        is_target(r, user) || !together(node, head))
      continue;
    const std::vector<NodeId>& readers = r.users.of(user);
    const bool ordered = std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const std::vector<NodeId>& controls = r.node(reader).control_inputs;
      return std::find(controls.begin(), controls.end(), user) != controls.end();
    });
    if (!ordered && !depends(r, w.node, user)) return user;
  }
  return std::nullopt;
}

struct Head {
  Node made;
  NodeId product;                    // that makes dy
  std::optional<NodeId> of_weights;  // the product that makes dw
};

std::optional<Head> find_head(const Rewrite& r, const Match& match) {
  const Node& layer = r.node(match[0]);
  const bool joined = joined_layer().names(layer);
  if (!is_plain(r.plan, layer)) return std::nullopt;
  // From the layer's gradient back to the product, through views that nobody else reads.
  ValueRef dy = layer.inputs[0];
  while (r.is_for_one(dy.node) && reshape().names(r.node(dy.node))) dy = r.node(dy.node).inputs[0];
  const Node& product = r.node(dy.node);
  if (!r.is_for_one(dy.node) || !is_product(product, false, true) || !together(product, layer))
    return std::nullopt;
  Head head{layer, product.id, {}};
  head.made.op = &OpRegistry::global().require("braid.ReluHeadGrad");
  head.made.attrs.set("joined", joined);
  head.made.inputs = {product.inputs[0], product.inputs[1], layer.inputs[1]};
  const auto shape = [&](int i) -> const Shape& {
    return r.graph.info(head.made.inputs[static_cast<std::size_t>(i)]).shape;
  };
  if (!have_form(shape(0), shape(1), shape(2), joined) || !suits_device(r.plan, head.made))
    return std::nullopt;
  head.of_weights = find_gradient_of_weights(r, head.made);
  return head;
}

void build_head(Rewrite& r, const Match& match, const Head& head) {
  const NodeId made = replace(r.plan, match[0], head.made, "/head");
  take_place(r.plan, head.product, made);
  if (!head.of_weights) return;
  replace_value(r.plan, {*head.of_weights, 0}, {made, 2});
  take_place(r.plan, *head.of_weights, made);
}

}  // namespace

void fuse_heads(Plan& plan) {
  run_rules(plan,
            {.rules = {{"head", {"braid.ReluBiasGrad", "braid.JoinedReluBiasGrad"}, find_head, build_head}},
             .text = [](const std::vector<int>& applied) {
               return "gradients of " + std::to_string(applied[0]) + " heads";
             }});
}

}  // namespace braid
