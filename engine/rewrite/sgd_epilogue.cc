// Plain gradient descent by a gradient that is a product, which nobody else reads, is the product's last
// step:
//   g = MatMul or BatchMatMulV2(a, b)
//   braid.ApplyOptimizer(handle, g), plain descent  -> braid.ProductUpdate(handle, scale, a, b)
// On a device: the gradient is neither written nor read. Left apart: products with few rows or columns, long
// sums of few outputs, and nodes on different hand-set streams; their updates are put into one node where
// they are small (group_updates.cc). The fused node is a backward node, as the product was.
#include <algorithm>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

constexpr std::int64_t kLeastWidth = 64;
/// Of 128 x 128 outputs. Products with fewer and longer sums gain more by sums that are split over the
/// device.
constexpr std::int64_t kLeastUpdateTiles = 64, kSplitSum = 512;

class SgdEpilogue {
 public:
  explicit SgdEpilogue(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (const NodeId id : graph_.topological_order())
      if (graph_.node(id).op->name == "braid.ApplyOptimizer") fuse(id);
    if (fused_ == 0) return;
    prune(plan_, true);
    plan_.note("fusion", std::to_string(fused_) + " updates by products");
  }

 private:
  void fuse(NodeId id) {
    Node update = graph_.node(id);
    const OptimizerSpec spec = optimizer_spec(update.attrs);
    if (!is_plain(plan_, update) || !is_plain_descent(spec)) return;
    const NodeId source = update.inputs[1].node;
    const Node product = graph_.node(source);
    if (update.colocate_with == source) {  // as training makes it
      update.colocate_with = product.colocate_with;
      if (update.stream == kNoStream) update.stream = product.stream;
    }
    const bool batched = product.op->name == "BatchMatMulV2";
    if ((product.op->name != "MatMul" && !batched) || !is_inner(plan_, source) ||
        users_.of(source).size() != 1 || !together(product, update) || !have_form(product))
      return;
    Node fused = update;
    fused.op = &OpRegistry::global().require("braid.ProductUpdate");
    fused.attrs = {{"transpose_a", product.attrs.get<bool>(batched ? "adj_x" : "transpose_a", false)},
                   {"transpose_b", product.attrs.get<bool>(batched ? "adj_y" : "transpose_b", false)}};
    fused.inputs = {update.inputs[0], scale(update), product.inputs[0], product.inputs[1]};
    fused.forward_of = product.forward_of;
    take_place(plan_, source, replace(plan_, id, std::move(fused), "/product"));
    ++fused_;
  }

  /// Matrices, or lanes of them and matrices that the lanes share.
  bool have_form(const Node& product) const {
    const OutputInfo& out = product.outputs[0];
    const Shape& shape = out.shape;
    if (out.dtype != DType::Float32 || !shape.is_static() || shape.rank() < 2 || shape.rank() > 3)
      return false;
    const std::int64_t m = shape[shape.rank() - 2], n = shape[shape.rank() - 1];
    const std::int64_t tiles = (m + 127) / 128 * ((n + 127) / 128) * (shape.rank() == 3 ? shape[0] : 1);
    const Shape& a = graph_.info(product.inputs[0]).shape;
    const bool transposed =
        product.attrs.get<bool>(product.op->name == "MatMul" ? "transpose_a" : "adj_x", false);
    const std::int64_t sum = a[a.rank() - (transposed ? 2 : 1)];
    if (std::min(m, n) < kLeastWidth || (tiles < kLeastUpdateTiles && sum >= kSplitSum)) return false;
    return std::all_of(product.inputs.begin(), product.inputs.end(), [&](ValueRef input) {
      const Shape& operand = graph_.info(input).shape;
      return operand.rank() == 2 || (operand.rank() == 3 && shape.rank() == 3 && operand[0] == shape[0]);
    });
  }

  /// One for all updates of the program.
  ValueRef scale(const Node& update) {
    if (scale_ == kNoNode) {
      Node made;
      made.op = &OpRegistry::global().require("braid.DescentScale");
      made.name = graph_.unique_name("update/scale");
      made.device = update.device;
      scale_ = graph_.add(std::move(made));
    }
    return {scale_, 0};
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  NodeId scale_ = kNoNode;
  int fused_ = 0;
};

}  // namespace

void fuse_sgd_epilogue(Plan& plan) { SgdEpilogue(plan).run(); }

}  // namespace braid
