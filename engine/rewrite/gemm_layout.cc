#include <algorithm>
#include <optional>
#include <set>

#include "engine/ops/fused/relu_bias_grad.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::int64_t kTile = 128, kLeastTiles = 64;  // of outputs
constexpr std::int64_t kLeastSum = 512, kLeastSumOfBoth = 4096;
constexpr std::int64_t kAlignment = 4;  // elements of a row of dz^T, whose address is 16-byte aligned

/// Whether the node is x^T dz, with enough outputs.
bool gains(const Rewrite& r, const Node& node, ValueRef dz) {
  const MatrixProduct& form = node.op->product;
  if (!form.transpose_a || !suits_device(r.plan, node)) return false;
  const ValueRef x = node.inputs[static_cast<std::size_t>(form.a)];
  if (node.inputs[static_cast<std::size_t>(form.b)] != dz || x == dz ||
      !node.attrs.get<bool>(form.transpose_a, false) || node.attrs.get<bool>(form.transpose_b, false))
    return false;
  const Shape &of_x = r.graph.info(x).shape, &of_dz = r.graph.info(dz).shape;
  if (!of_x.is_static() || of_x.rank() < 2) return false;
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  const std::int64_t lanes = of_dz.rank() == 3 ? of_dz[0] : 1;
  return lanes * tiles(of_x[of_x.rank() - 1]) * tiles(of_dz[of_dz.rank() - 1]) >= kLeastTiles;
}

struct Readers {
  std::set<NodeId> products;  // that gain
  bool needs_rows;            // for others
};

std::optional<Readers> find_readers(const Rewrite& r, const Match& match) {
  const Node& gradient = r.node(match[0]);
  const OutputInfo& dz = gradient.outputs[0];
  if (!suits_device(r.plan, gradient) || dz.dtype != DType::Float32 || !dz.shape.is_static())
    return std::nullopt;
  const std::int64_t sum = dz.shape[dz.shape.rank() - 2];
  Readers readers{{}, is_fetched(r.plan, gradient.id)};
  for (const NodeId user : r.users.of(gradient.id)) {
    const auto& inputs = r.node(user).inputs;
    if (std::find(inputs.begin(), inputs.end(), ValueRef{gradient.id, 0}) == inputs.end()) continue;
    if (gains(r, r.node(user), {gradient.id, 0}))
      readers.products.insert(user);
    else
      readers.needs_rows = true;
  }
  const bool is_short = sum < (readers.needs_rows ? kLeastSumOfBoth : kLeastSum);
  if (readers.products.empty() || sum % kAlignment != 0 || is_short) return std::nullopt;
  return readers;
}

void turn_columns(Rewrite& r, const Match& match, const Readers& readers) {
  Node& gradient = r.graph.mutable_node(match[0]);
  set_grad_layout(gradient, readers.needs_rows ? GradLayout::Both : GradLayout::Columns);
  const int columns = readers.needs_rows ? static_cast<int>(gradient.outputs.size()) - 1 : 0;
  for (const NodeId product : readers.products) {
    Node& node = r.graph.mutable_node(product);
    node.inputs[static_cast<std::size_t>(node.op->product.b)] = {match[0], columns};
    node.attrs.set(node.op->product.transpose_b, true);
  }
}

}  // namespace

void assign_gemm_layout(Plan& plan) {
  // Tensor cores read halves along either axis.
  if (plan.options.precision.half != DType::Float32) return;
  std::size_t products = 0;
  run_rules(plan, {.rules = {{"columns of a gradient",
                              {"braid.ReluBiasGrad", "braid.JoinedReluBiasGrad", "braid.ReluHeadGrad"},
                              find_readers,
                              [&products](Rewrite& r, const Match& match, const Readers& readers) {
                                turn_columns(r, match, readers);
                                products += readers.products.size();
                              }}},
                   .text =
                       [&products](const std::vector<int>&) {
                         return std::to_string(products) + " products read columns of what they sum over";
                       },
                   .prunes = false});
}

}  // namespace braid
