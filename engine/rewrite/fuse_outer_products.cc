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

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

/// Whether `id` is such a product, for nobody but `sum`.
bool is_term(const Plan& plan, const Users& users, const Node& sum, ValueRef value) {
  const Graph& graph = plan.program.graph;
  const Node& node = graph.node(value.node);
  if (node.op->name != "BatchMatMulV2" || !node.attrs.get<bool>("adj_x", false) ||
      node.attrs.get<bool>("adj_y", false) || !is_plain(plan, node) || is_fetched(plan, node.id) ||
      node.device != sum.device || node.colocate_with != sum.colocate_with || users.of(node.id).size() != 1)
    return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef input) {
    const OutputInfo& info = graph.info(input);
    return info.dtype == DType::Float32 && info.shape.rank() == 3 && info.shape.is_static() &&
           info.shape[1] == 1 && info.shape[0] == sum.outputs[0].shape[0];
  });
}

/// The batch whose lanes are `count` inputs of the node from `first` on, in their order, if there is one.
std::optional<ValueRef> batch_of(const Plan& plan, const Node& node, std::size_t first, std::size_t count) {
  const Graph& graph = plan.program.graph;
  const Node& lanes = graph.node(node.inputs[first].node);
  if (lanes.op->name != "Unpack" || lanes.attrs.get<std::int64_t>("axis", 0) != 0 ||
      lanes.outputs.size() != count || !is_plain(plan, lanes))
    return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    const ValueRef lane{lanes.id, static_cast<int>(i)};
    if (node.inputs[first + i] != lane || plan.feed_of(lane) >= 0) return std::nullopt;
  }
  return lanes.inputs[0];
}

}  // namespace

void join_outer_products(Plan& plan) {
  Graph& graph = plan.program.graph;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->name != "braid.SumOfOuterProducts" || node.inputs.size() < 4) continue;
    const std::size_t terms = node.inputs.size() / 2;
    const auto left = batch_of(plan, node, 0, terms), right = batch_of(plan, node, terms, terms);
    if (left && right) graph.mutable_node(id).inputs = {*left, *right};
  }
}

void fuse_outer_products(Plan& plan) {
  Graph& graph = plan.program.graph;
  const Users users(graph);
  int made = 0;
  for (const NodeId id : graph.topological_order()) {
    const Node sum = graph.node(id);
    if (sum.op->name != "AddN" || sum.inputs.size() < 2 || !is_plain(plan, sum) ||
        sum.outputs[0].shape.rank() != 3 ||
        !std::all_of(sum.inputs.begin(), sum.inputs.end(),
                     [&](ValueRef input) { return is_term(plan, users, sum, input); }))
      continue;
    Node fused = sum;
    fused.op = &OpRegistry::global().require("braid.SumOfOuterProducts");
    fused.attrs = {};
    fused.inputs.clear();
    for (const std::size_t side : {0, 1})
      for (const ValueRef product : sum.inputs) fused.inputs.push_back(graph.node(product.node).inputs[side]);
    if (!suits_device(plan, fused)) continue;
    replace(plan, id, std::move(fused), "/fused");
    ++made;
  }
  if (made == 0) return;
  prune(plan, true);
  plan.note("fusion", "sums of outer products, " + std::to_string(made));
}

}  // namespace braid
