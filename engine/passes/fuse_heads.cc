// A head of one output behind a layer (a logit) has a gradient dy = g w^T as large as the layer's output,
// which is only read to be masked and summed again, beside the same output that the gradient of w reads:
//   dy = MatMul(g [m, 1], w [n, 1], transpose_b), of lanes: BatchMatMulV2 with adj_y
//   dz, db = braid.ReluBiasGrad(dy, y), or Joined...     -> dz, db, dw = braid.ReluHeadGrad(g, w, y)
//   dw = MatMul(y, g, transpose_a), of lanes: with adj_x
// On a device: y is read once and dy never written. Left apart: gradients that others read, too, and nodes on
// different hand-set streams.
#include <algorithm>
#include <optional>

#include "engine/ops/op.h"
#include "engine/passes/rewrite.h"

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
    plan_.program.notes.push_back("fusion: gradients of " + std::to_string(fused_) + " heads");
  }

 private:
  /// Whether it does nothing but make its values.
  bool is_pure(NodeId id) const {
    return is_plain(plan_, graph_.node(id)) &&
           std::find(plan_.targets.begin(), plan_.targets.end(), id) == plan_.targets.end();
  }
  bool is_inner(NodeId id) const { return is_pure(id) && !is_fetched(plan_, id); }

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
    while (is_inner(dy.node) && users_.of(dy.node).size() == 1 && graph_.node(dy.node).op->name == "Reshape")
      dy = graph_.node(dy.node).inputs[0];
    const Node product = graph_.node(dy.node);
    if (!is_inner(dy.node) || users_.of(dy.node).size() != 1 || !is_product(product, false, true) ||
        !together(product, layer))
      return;
    const ValueRef g = product.inputs[0], w = product.inputs[1], y = layer.inputs[1];
    if (!have_form(graph_.info(g).shape, graph_.info(w).shape, graph_.info(y).shape, joined)) return;

    Node head = layer;
    head.op = &OpRegistry::global().require("braid.ReluHeadGrad");
    head.attrs.set("joined", joined);
    head.inputs = {g, w, y};
    const std::optional<NodeId> of_weights = find_gradient_of_weights(g, y, graph_.info(w).shape, layer);
    const NodeId made = replace(plan_, id, std::move(head), "/head");
    if (of_weights) {
      graph_.replace_uses({*of_weights, 0}, {made, 2});
      std::replace(plan_.fetches.begin(), plan_.fetches.end(), ValueRef{*of_weights, 0}, ValueRef{made, 2});
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
  std::optional<NodeId> find_gradient_of_weights(ValueRef g, ValueRef y, const Shape& shape,
                                                 const Node& layer) const {
    for (const NodeId user : users_.of(g.node)) {
      const Node& node = graph_.node(user);
      if (!is_product(node, true, false) || node.inputs[1] != g || node.outputs[0].shape != shape ||
          behind_views(node.inputs[0]) != behind_views(y) || !is_pure(user) || !together(node, layer))
        continue;
      const std::vector<NodeId>& readers = users_.of(user);
      const bool ordered = std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
        const std::vector<NodeId>& controls = graph_.node(reader).control_inputs;
        return std::find(controls.begin(), controls.end(), user) != controls.end();
      });
      if (!ordered) return user;
    }
    return std::nullopt;
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  int fused_ = 0;
};

}  // namespace

void fuse_heads(Plan& plan) {
  if (plan.options.domain == Domain::Device) HeadFusion(plan).run();
}

}  // namespace braid
