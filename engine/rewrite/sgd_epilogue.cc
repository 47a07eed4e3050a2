#include <algorithm>
#include <optional>

#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::int64_t kLeastWidth = 64;
/// Of 128 x 128 outputs. Products with fewer and longer sums gain more by sums that are split over the
/// device.
constexpr std::int64_t kLeastUpdateTiles = 64, kSplitSum = 512;

/// Matrices, or lanes of them and matrices that the lanes share.
bool takes_product(const Rewrite& r, const Node& product) {
  const OutputInfo& out = product.outputs[0];
  const Shape& shape = out.shape;
  if (out.dtype != DType::Float32 || !shape.is_static() || shape.rank() < 2 || shape.rank() > 3) return false;
  const std::int64_t m = shape[shape.rank() - 2], n = shape[shape.rank() - 1];
  const std::int64_t tiles = (m + 127) / 128 * ((n + 127) / 128) * (shape.rank() == 3 ? shape[0] : 1);
  const Shape& a = r.graph.info(product.inputs[0]).shape;
  const bool transposed = product.attrs.get<bool>(product.op->product.transpose_a, false);
  const std::int64_t sum = a[a.rank() - (transposed ? 2 : 1)];
  if (std::min(m, n) < kLeastWidth || (tiles < kLeastUpdateTiles && sum >= kSplitSum)) return false;
  return std::all_of(product.inputs.begin(), product.inputs.end(), [&](ValueRef input) {
    const Shape& operand = r.graph.info(input).shape;
    return operand.rank() == 2 || (operand.rank() == 3 && shape.rank() == 3 && operand[0] == shape[0]);
  });
}

/// The update, with the stream and the colocation that the fused node has.
std::optional<Node> find_update(const Rewrite& r, const Match& match) {
  Node update = r.node(match[0]);
  const Node& product = r.node(match[1]);
  if (!is_plain(r.plan, update) || !is_plain_descent(optimizer_spec(update.attrs))) return std::nullopt;
  if (update.colocate_with == product.id) {  // as training makes it
    update.colocate_with = product.colocate_with;
    if (update.stream == kNoStream) update.stream = product.stream;
  }
  if (!r.is_for_one(product.id) || !together(product, update) || !takes_product(r, product))
    return std::nullopt;
  return update;
}

/// One for all updates of the program.
ValueRef scale_of(Rewrite& r, const Node& update, NodeId& scale) {
  if (scale == kNoNode) {
    Node made;
    made.op = &OpRegistry::global().require("braid.DescentScale");
    made.name = r.graph.unique_name("update/scale");
    made.device = update.device;
    scale = r.graph.add(std::move(made));
  }
  return {scale, 0};
}

void build_update(Rewrite& r, const Match& match, const Node& update, NodeId& scale) {
  const Node product = r.node(match[1]);
  const MatrixProduct& form = product.op->product;
  Node fused = update;
  fused.op = &OpRegistry::global().require("braid.ProductUpdate");
  fused.attrs = {{"transpose_a", product.attrs.get<bool>(form.transpose_a, false)},
                 {"transpose_b", product.attrs.get<bool>(form.transpose_b, false)}};
  fused.inputs = {update.inputs[0], scale_of(r, update, scale), product.inputs[0], product.inputs[1]};
  fused.forward_of = product.forward_of;
  take_place(r.plan, product.id, replace(r.plan, match[0], std::move(fused), "/product"));
}

}  // namespace

void fuse_sgd_epilogue(Plan& plan) {
  NodeId scale = kNoNode;
  run_rules(plan,
            {.rules = {{"update by a product",
                        Pattern{"braid.ApplyOptimizer"}.reading(1, {"MatMul", "BatchMatMulV2"}), find_update,
                        [&scale](Rewrite& r, const Match& match, const Node& update) {
                          build_update(r, match, update, scale);
                        }}},
             .text = [](const std::vector<int>& applied) {
               return std::to_string(applied[0]) + " updates by products";
             }});
}

}  // namespace braid
