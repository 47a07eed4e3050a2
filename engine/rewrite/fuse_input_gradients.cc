// The gradient dz of a layer that reads the model's own inputs, a few columns (the dense features of an
// example), is only read to be multiplied with them:
//   dz, db = braid.ReluBiasGrad(dy, y)
//   dw = MatMul(x [m, k], dz, transpose_a)  -> dw, db = braid.ReluInputGrad(dy, y, x)
// On a device: dz is never written. Left apart: gradients that others read, too, more columns than the kernel
// keeps sums of, and nodes on different hand-set streams.
#include <string>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/ops/fused/relu_input_grad.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

class InputGradientFusion {
 public:
  explicit InputGradientFusion(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (const NodeId id : graph_.topological_order())
      if (graph_.node(id).op->name == "MatMul") fuse(id);
    if (fused_ == 0) return;
    prune(plan_, true);
    plan_.note("fusion", "gradients of " + std::to_string(fused_) + " layers of inputs");
  }

 private:
  void fuse(NodeId id) {
    const Node product = graph_.node(id);
    if (!is_plain(plan_, product) || !product.attrs.get<bool>("transpose_a", false) ||
        product.attrs.get<bool>("transpose_b", false))
      return;
    const ValueRef x = product.inputs[0], dz = product.inputs[1];
    const Node layer = graph_.node(dz.node);
    if (layer.op->name != "braid.ReluBiasGrad" || dz.output != 0 || !is_inner(plan_, layer.id) ||
        !together(layer, product) || x == dz || x.node == layer.id || !is_only_reader(id, dz))
      return;
    Node fused = product;
    fused.op = &OpRegistry::global().require("braid.ReluInputGrad");
    fused.attrs = {};
    fused.inputs = {layer.inputs[0], layer.inputs[1], x};
    const Shape& inputs = graph_.info(x).shape;
    if (!inputs.is_static() || inputs[1] > kMostInputColumns || !suits_device(plan_, fused)) return;
    const NodeId made = replace(plan_, id, std::move(fused), "/layer");
    replace_value(plan_, {layer.id, 1}, {made, 1});
    take_place(plan_, layer.id, made);
    ++fused_;
  }

  bool is_only_reader(NodeId reader, ValueRef value) const {
    for (const NodeId user : users_.of(value.node)) {
      if (user == reader) continue;
      const Node& node = graph_.node(user);
      for (const ValueRef input : node.inputs)
        if (input == value) return false;
      for (const NodeId control : node.control_inputs)
        if (control == value.node) return false;
    }
    return true;
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  int fused_ = 0;
};

}  // namespace

void fuse_input_gradients(Plan& plan) { InputGradientFusion(plan).run(); }

}  // namespace braid
