// The gradient of a batch of matrices [b, r, n] that several row vectors [b, 1, r] are multiplied with (the
// experts of a mixture, by the gates of its tasks) is a sum of products that are as large as it each:
//   AddN(BatchMatMulV2(a_i, c_i, adj_x)...), a_i [b, 1, r], c_i [b, 1, n]  -> braid.SumOfOuterProducts
// On a device, where it is read and written once then. Hand-set streams of the products are given up, so that
// sums do not depend on them. Left apart: products that somebody else uses, too, nodes with control
// edges, on different devices or in different colocation groups, and what the kernel does not take.
//
// Once siblings are batched (join_outer_products), vectors that are lanes of two batches are taken as those.
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& fused_sum() {
  static const Pattern pattern{"braid.SumOfOuterProducts"};
  return pattern;
}

/// Whether the value is such a product, for nobody but `sum`.
bool is_term(const Rewrite& r, const Node& sum, ValueRef value) {
  static const Pattern product{"BatchMatMulV2"};
  const Node& node = r.node(value.node);
  if (!product.names(node) || !node.attrs.get<bool>("adj_x", false) || node.attrs.get<bool>("adj_y", false) ||
      !is_plain(r.plan, node) || is_fetched(r.plan, node.id) || node.device != sum.device ||
      node.colocate_with != sum.colocate_with || r.users.of(node.id).size() != 1)
    return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef input) {
    const OutputInfo& info = r.graph.info(input);
    return info.dtype == DType::Float32 && info.shape.rank() == 3 && info.shape.is_static() &&
           info.shape[1] == 1 && info.shape[0] == sum.outputs[0].shape[0];
  });
}

std::optional<Node> find_outer_sum(const Rewrite& r, const Match& match) {
  const Node& sum = r.node(match[0]);
  if (sum.inputs.size() < 2 || !is_plain(r.plan, sum) || sum.outputs[0].shape.rank() != 3 ||
      !std::all_of(sum.inputs.begin(), sum.inputs.end(),
                   [&](ValueRef input) { return is_term(r, sum, input); }))
    return std::nullopt;
  Node fused = sum;
  fused.op = &OpRegistry::global().require("braid.SumOfOuterProducts");
  fused.attrs = {};
  fused.inputs.clear();
  for (const std::size_t side : {0, 1})
    for (const ValueRef product : sum.inputs) fused.inputs.push_back(r.node(product.node).inputs[side]);
  if (!suits_device(r.plan, fused)) return std::nullopt;
  return fused;
}

/// The batch whose lanes are `count` inputs of the node from `first` on, in their order, if there is one.
std::optional<ValueRef> batch_of(const Rewrite& r, const Node& node, std::size_t first, std::size_t count) {
  static const Pattern unpack{"Unpack"};
  const Node& lanes = r.node(node.inputs[first].node);
  if (!unpack.names(lanes) || lanes.attrs.get<std::int64_t>("axis", 0) != 0 ||
      lanes.outputs.size() != count || !is_plain(r.plan, lanes))
    return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    const ValueRef lane{lanes.id, static_cast<int>(i)};
    if (node.inputs[first + i] != lane || r.plan.feed_of(lane) >= 0) return std::nullopt;
  }
  return lanes.inputs[0];
}

/// Both batches of a sum of lanes.
std::optional<std::vector<ValueRef>> find_batches(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  if (node.inputs.size() < 4) return std::nullopt;
  const std::size_t terms = node.inputs.size() / 2;
  const auto left = batch_of(r, node, 0, terms), right = batch_of(r, node, terms, terms);
  if (!left || !right) return std::nullopt;
  return std::vector<ValueRef>{*left, *right};
}

}  // namespace

bool takes_lane(const Node& user, std::size_t input, std::size_t lane, std::size_t lanes) {
  const std::size_t terms = user.inputs.size() / 2;
  return fused_sum().names(user) && terms == lanes && input % terms == lane;
}

void join_outer_products(Plan& plan) {
  run_rules(plan, {.rules = {{"batches of outer products", fused_sum(), find_batches,
                              [](Rewrite& r, const Match& match, const std::vector<ValueRef>& batches) {
                                r.graph.mutable_node(match[0]).inputs = batches;
                              }}},
                   .prunes = false});
}

void fuse_outer_products(Plan& plan) {
  run_rules(plan, {.rules = {{"sum of outer products",
                              {"AddN"},
                              find_outer_sum,
                              [](Rewrite& r, const Match& match, const Node& fused) {
                                replace(r.plan, match[0], fused, "/fused");
                              }}},
                   .text = [](const std::vector<int>& applied) {
                     return "sums of outer products, " + std::to_string(applied[0]);
                   }});
}

}  // namespace braid
