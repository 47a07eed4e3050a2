// Lanes of a layer that are joined, example by example, are written where they belong, and their gradient is
// read there, instead of being moved:
//   Transpose(braid.FusedMatMul of lanes), axes 0 and 1         -> FusedMatMul with the attribute `joined`
//   braid.ReluBiasGrad(Transpose(dy), that layer's output)      -> braid.JoinedReluBiasGrad(dy, ...)
// On a device. Left apart: layers that others read as lanes, too, and nodes on different hand-set streams.
#include <vector>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

class OutputJoin {
 public:
  explicit OutputJoin(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (const NodeId id : graph_.topological_order())
      if (swaps_lanes(graph_.node(id))) join(id);
    if (joined_ == 0) return;
    prune(plan_, true);
    plan_.note("fusion", "lanes of " + std::to_string(joined_) + " layers are written side by side");
  }

 private:
  /// Whether it is [lanes, m, n] as [m, lanes, n], or the other way.
  bool swaps_lanes(const Node& node) const {
    if (node.removed || node.op->name != "Transpose" || !is_plain(plan_, node) ||
        node.outputs[0].shape.rank() != 3 || !node.outputs[0].shape.is_static())
      return false;
    const Tensor* order = graph_.known_value(node.inputs[1]);
    return order && tensor_to_int64s(*order) == std::vector<std::int64_t>{1, 0, 2};
  }

  void join(NodeId id) {
    const Node moved = graph_.node(id);
    const NodeId layer_id = moved.inputs[0].node;
    const Node layer = graph_.node(layer_id);
    if (layer.op->name != "braid.FusedMatMul" || !is_inner(plan_, layer_id) || !together(layer, moved) ||
        layer.attrs.get<bool>("joined", false))
      return;
    std::vector<NodeId> gradients;
    for (const NodeId user : users_.of(layer_id)) {
      if (user == id) continue;
      if (!reads_moved_gradient(user, {layer_id, 0})) return;
      gradients.push_back(user);
    }
    Node joined = layer;
    joined.attrs.set("joined", true);
    const NodeId made = replace(plan_, id, std::move(joined), "/joined");
    take_place(plan_, layer_id, made);
    for (const NodeId gradient : gradients) {
      Node reads = graph_.node(gradient);
      reads.op = &OpRegistry::global().require("braid.JoinedReluBiasGrad");
      const NodeId dy = reads.inputs[0].node;
      reads.inputs = {graph_.node(dy).inputs[0], {made, 0}};
      take_place(plan_, dy, replace(plan_, gradient, std::move(reads), "/joined"));
    }
    ++joined_;
  }

  /// Whether `id` is the gradient of the layer, of a dy that is moved for nobody else.
  bool reads_moved_gradient(NodeId id, ValueRef layer) const {
    const Node& gradient = graph_.node(id);
    if (gradient.op->name != "braid.ReluBiasGrad" || gradient.inputs[1] != layer ||
        !is_plain(plan_, gradient))
      return false;
    const NodeId dy = gradient.inputs[0].node;
    return swaps_lanes(graph_.node(dy)) && is_inner(plan_, dy) && users_.of(dy).size() == 1 &&
           together(graph_.node(dy), gradient);
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  int joined_ = 0;
};

}  // namespace

void join_outputs(Plan& plan) { OutputJoin(plan).run(); }

}  // namespace braid
