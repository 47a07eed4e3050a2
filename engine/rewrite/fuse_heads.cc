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

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

class HeadFusion {
 public:
  explicit HeadFusion(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (const NodeId id : graph_.topological_order()) {
      const std::string& op = graph_.node(id).op->name;
      if (op == "braid.ReluBiasGrad" || op == "braid.JoinedReluBiasGrad") fuse(id);
    }
    if (fused_ == 0) return;
    prune(plan_, true);
    plan_.note("fusion", "gradients of " + std::to_string(fused_) + " heads");
  }

 private:
  bool is_target(NodeId id) const {
    return std::find(plan_.targets.begin(), plan_.targets.end(), id) != plan_.targets.end();
  }
  /// Whether nobody but one node has to do with it.
  bool is_for_one(NodeId id) const { return is_inner(plan_, id) && users_.of(id).size() == 1; }

  /// The value that this one is another view of.
  ValueRef behind_views(ValueRef value) const {
    while (graph_.node(value.node).op->name == "Reshape" && is_plain(plan_, graph_.node(value.node)))
      value = graph_.node(value.node).inputs[0];
    return value;
  }

  /// op(a) op(b) of two matrices, or of lanes of them.
  static bool is_product(const Node& node, bool transpose_a, bool transpose_b) {
    const auto flag = [&](const char* name) { return node.attrs.get<bool>(name, false); };
    if (node.op->name == "MatMul")
      return flag("transpose_a") == transpose_a && flag("transpose_b") == transpose_b;
    return node.op->name == "BatchMatMulV2" && flag("adj_x") == transpose_a && flag("adj_y") == transpose_b;
  }

  void fuse(NodeId id) {
    const Node layer = graph_.node(id);
    const bool joined = layer.op->name == "braid.JoinedReluBiasGrad";
    if (!is_plain(plan_, layer)) return;
    // From the layer's gradient back to the product, through views that nobody else reads.
    ValueRef dy = layer.inputs[0];
    while (is_for_one(dy.node) && graph_.node(dy.node).op->name == "Reshape")
      dy = graph_.node(dy.node).inputs[0];
    const Node product = graph_.node(dy.node);
    if (!is_for_one(dy.node) || !is_product(product, false, true) || !together(product, layer)) return;
    const ValueRef g = product.inputs[0], w = product.inputs[1], y = layer.inputs[1];
    if (!have_form(graph_.info(g).shape, graph_.info(w).shape, graph_.info(y).shape, joined)) return;

    Node head = layer;
    head.op = &OpRegistry::global().require("braid.ReluHeadGrad");
    head.attrs.set("joined", joined);
    head.inputs = {g, w, y};
    if (!suits_device(plan_, head)) return;
    const std::optional<NodeId> of_weights = find_gradient_of_weights(g, w, y, layer);
    const NodeId made = replace(plan_, id, std::move(head), "/head");
    take_place(plan_, product.id, made);
    if (of_weights) {
      replace_value(plan_, {*of_weights, 0}, {made, 2});
      take_place(plan_, *of_weights, made);
    }
    ++fused_;
  }

  /// Those of braid.ReluHeadGrad.
  static bool have_form(const Shape& g, const Shape& w, const Shape& y, bool joined) {
    if (!g.is_static() || !w.is_static() || !y.is_static()) return false;
    if (joined) return g == Shape{y[0], 1} && w == Shape{y[1] * y[2], 1};
    if (y.rank() == 2) return g == Shape{y[0], 1} && w == Shape{y[1], 1};
    return g == Shape{y[0], y[1], 1} && w == Shape{y[0], y[2], 1};
  }

  /// dw = y^T g, if there is one that may as well be computed here.
  std::optional<NodeId> find_gradient_of_weights(ValueRef g, ValueRef w, ValueRef y,
                                                 const Node& layer) const {
    for (const NodeId user : users_.of(g.node)) {
      const Node& node = graph_.node(user);
      if (!is_product(node, true, false) || node.inputs[1] != g ||
          node.outputs[0].shape != graph_.info(w).shape || behind_views(node.inputs[0]) != behind_views(y) ||
          !is_plain(plan_, node) || is_target(user) || !together(node, layer))
        continue;
      const std::vector<NodeId>& readers = users_.of(user);
      const bool ordered = std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
        const std::vector<NodeId>& controls = graph_.node(reader).control_inputs;
        return std::find(controls.begin(), controls.end(), user) != controls.end();
      });
      if (!ordered && !depends(w.node, user)) return user;
    }
    return std::nullopt;
  }

  bool depends(NodeId from, NodeId on) const {
    std::set<NodeId> seen{from};
    std::vector<NodeId> open{from};
    while (!open.empty()) {
      const Node& node = graph_.node(open.back());
      open.pop_back();
      if (node.id == on) return true;
      for (const ValueRef input : node.inputs)
        if (seen.insert(input.node).second) open.push_back(input.node);
      for (const NodeId control : node.control_inputs)
        if (seen.insert(control).second) open.push_back(control);
    }
    return false;
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  int fused_ = 0;
};

}  // namespace

void fuse_heads(Plan& plan) { HeadFusion(plan).run(); }

}  // namespace braid
