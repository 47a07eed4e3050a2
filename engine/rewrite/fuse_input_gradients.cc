// The gradient dz of a layer that reads the model's own inputs, a few columns (the dense features of an
// example), is only read to be multiplied with them:
//   dz, db = braid.ReluBiasGrad(dy, y)
//   dw = MatMul(x [m, k], dz, transpose_a)  -> dw, db = braid.ReluInputGrad(dy, y, x)
// On a device: dz is never written. Left apart: gradients that others read, too, more columns than the kernel
// keeps sums of, and nodes on different hand-set streams.
#include <optional>
#include <string>

#include "engine/ops/fused/relu_input_grad.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// The fused node of a product x^T dz with the layer that makes dz.
std::optional<Node> find_layer_of_inputs(const Rewrite& r, const Match& match) {
  const Node &product = r.node(match[0]), &layer = r.node(match[1]);
  const MatrixProduct& form = product.op->product;
  if (!is_plain(r.plan, product) || !product.attrs.get<bool>(form.transpose_a, false) ||
      product.attrs.get<bool>(form.transpose_b, false))
    return std::nullopt;
  const ValueRef x = product.inputs[0], dz = product.inputs[1];
  if (dz.output != 0 || !is_inner(r.plan, layer.id) || !together(layer, product) || x == dz ||
      x.node == layer.id || !r.users.is_only_reader(product.id, dz))
    return std::nullopt;
  Node fused = product;
  fused.op = &OpRegistry::global().require("braid.ReluInputGrad");
  fused.attrs = {};
  fused.inputs = {layer.inputs[0], layer.inputs[1], x};
  const Shape& inputs = r.graph.info(x).shape;
  if (!inputs.is_static() || inputs[1] > kMostInputColumns || !suits_device(r.plan, fused))
    return std::nullopt;
  return fused;
}

void build_layer_of_inputs(Rewrite& r, const Match& match, const Node& fused) {
  const NodeId made = replace(r.plan, match[0], fused, "/layer");
  replace_value(r.plan, {match[1], 1}, {made, 1});
  take_place(r.plan, match[1], made);
}

}  // namespace

void fuse_input_gradients(Plan& plan) {
  run_rules(plan,
            {.rules = {{"gradient of a layer of inputs", Pattern{"MatMul"}.reading(1, {"braid.ReluBiasGrad"}),
                        find_layer_of_inputs, build_layer_of_inputs}},
             .text = [](const std::vector<int>& applied) {
               return "gradients of " + std::to_string(applied[0]) + " layers of inputs";
             }});
}

}  // namespace braid
