// The gradient of weights x^T dz sums over the rows of both factors. cuBLASLt multiplies TF32 numbers faster
// where one of them lies along the sum, so the node that makes dz writes its columns too, or instead:
//   braid.ReluBiasGrad, JoinedReluBiasGrad or ReluHeadGrad -> the same with the layout Both or Columns
//   MatMul, BatchMatMulV2 or braid.ProductUpdate of x^T dz -> of x^T (dz^T)^T
// On a device. Left apart: products with few outputs, whose sums are split over the device, and short sums,
// which gain less than writing dz twice costs where its rows are needed as well.
#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "engine/ops/fused/product_update.h"
#include "engine/ops/fused/relu_bias_grad.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

constexpr std::int64_t kTile = 128, kLeastTiles = 64;  // of outputs
constexpr std::int64_t kLeastSum = 512, kLeastSumOfBoth = 4096;
constexpr std::int64_t kAlignment = 4;  // elements of a row of dz^T, whose address is 16-byte aligned

/// How a product names its factors.
struct Factors {
  std::string_view op;
  const char *transpose_a, *transpose_b;
  std::size_t a, b;  // inputs
};
constexpr std::array<Factors, 3> kProducts = {{
    {"MatMul", "transpose_a", "transpose_b", 0, 1},
    {"BatchMatMulV2", "adj_x", "adj_y", 0, 1},
    {"braid.ProductUpdate", "transpose_a", "transpose_b", UpdateProduct::kA, UpdateProduct::kB},
}};

bool makes_gradient(const Node& node) {
  return node.op->name == "braid.ReluBiasGrad" || node.op->name == "braid.JoinedReluBiasGrad" ||
         node.op->name == "braid.ReluHeadGrad";
}

class GemmLayout {
 public:
  explicit GemmLayout(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (const Node& node = graph_.node(id);
          !node.removed && makes_gradient(node) && suits_device(plan_, node))
        turn(id);
    if (products_ == 0) return;
    plan_.note("gradients", std::to_string(products_) + " products read columns of what they sum over");
  }

 private:
  void turn(NodeId id) {
    const OutputInfo& dz = graph_.node(id).outputs[0];
    if (dz.dtype != DType::Float32 || !dz.shape.is_static()) return;
    const std::int64_t sum = dz.shape[dz.shape.rank() - 2];
    std::set<NodeId> products;
    bool needs_rows = is_fetched(plan_, id);
    for (const NodeId user : users_.of(id)) {
      const auto& inputs = graph_.node(user).inputs;
      if (std::find(inputs.begin(), inputs.end(), ValueRef{id, 0}) == inputs.end()) continue;
      if (gains(user, {id, 0}))
        products.insert(user);
      else
        needs_rows = true;
    }
    if (products.empty() || sum % kAlignment != 0 || sum < (needs_rows ? kLeastSumOfBoth : kLeastSum)) return;
    Node& gradient = graph_.mutable_node(id);
    set_grad_layout(gradient, needs_rows ? GradLayout::Both : GradLayout::Columns);
    const int columns = needs_rows ? static_cast<int>(gradient.outputs.size()) - 1 : 0;
    for (const NodeId product : products) {
      const Factors& factors = *factors_of(product);
      Node& node = graph_.mutable_node(product);
      node.inputs[factors.b] = {id, columns};
      node.attrs.set(factors.transpose_b, true);
      ++products_;
    }
  }

  const Factors* factors_of(NodeId id) const {
    const auto at = std::find_if(kProducts.begin(), kProducts.end(),
                                 [&](const Factors& f) { return f.op == graph_.node(id).op->name; });
    return at == kProducts.end() ? nullptr : &*at;
  }

  /// Whether it is x^T dz, with enough outputs.
  bool gains(NodeId id, ValueRef dz) const {
    const Factors* factors = factors_of(id);
    const Node& node = graph_.node(id);
    if (!factors || !suits_device(plan_, node)) return false;
    const ValueRef x = node.inputs[factors->a];
    if (node.inputs[factors->b] != dz || x == dz || !node.attrs.get<bool>(factors->transpose_a, false) ||
        node.attrs.get<bool>(factors->transpose_b, false))
      return false;
    const Shape &of_x = graph_.info(x).shape, &of_dz = graph_.info(dz).shape;
    if (!of_x.is_static() || of_x.rank() < 2) return false;
    const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
    const std::int64_t lanes = of_dz.rank() == 3 ? of_dz[0] : 1;
    return lanes * tiles(of_x[of_x.rank() - 1]) * tiles(of_dz[of_dz.rank() - 1]) >= kLeastTiles;
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  int products_ = 0;
};

}  // namespace

void assign_gemm_layout(Plan& plan) { GemmLayout(plan).run(); }

}  // namespace braid
