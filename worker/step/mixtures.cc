#include "worker/step/mixtures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

/// Slots below 0.
ValueRef dropped_by(Graph& graph, NodeId route) {
  const std::string name = graph.node(route).name + "/dropped";
  const auto constant = [&](const char* what, Tensor value) {
    return add_node(graph, "Const", name + what, {}, {{"dtype", value.dtype()}, {"value", std::move(value)}});
  };
  const ValueRef below = add_node(graph, "Less", name + "/is_none",
                                  {{route, 0}, constant("/no_slot", Tensor::scalar<std::int32_t>(0))},
                                  {{"T", DType::Int32}}, route);
  const ValueRef ones = add_node(graph, "Cast", name + "/ones", {below},
                                 {{"SrcT", DType::Bool}, {"DstT", DType::Float32}}, route);
  const Tensor axes = Tensor::from<std::int32_t>(Shape{2}, std::vector<std::int32_t>{0, 1});
  return add_node(graph, "Sum", name, {ones, constant("/axes", axes)},
                  {{"T", DType::Float32}, {"Tidx", DType::Int32}, {"keep_dims", false}}, route);
}

}  // namespace

void share_token_groups(TrainingGraph& training, int workers) {
  constexpr std::array<std::string_view, 4> kOps{"braid.RouteToExperts", "braid.DispatchTokens",
                                                 "braid.CombineTokens", "braid.SlotDots"};
  Graph& graph = training.graph;
  if (workers == 1) return;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || std::ranges::find(kOps, node.op->name) == kOps.end()) continue;
    const auto groups = node.attrs.get("groups", std::int64_t{1});
    if (groups != 1 && groups % workers != 0)
      throw InvalidArgument(fmt::format("{}: {} groups of tokens are not shared evenly by {} workers",
                                        place_of(node), groups, workers));
    graph.mutable_node(id).attrs.set("groups", std::max<std::int64_t>(groups / workers, 1));
  }
}

void count_dropped_tokens(TrainingGraph& training) {
  Graph& graph = training.graph;
  std::vector<NodeId> routes;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    // Recomputation runs a node again under another name.
    if (!node.removed && node.op->name == "braid.RouteToExperts" &&
        node.name.find("/again") == std::string::npos)
      routes.push_back(id);
  }
  if (routes.empty()) return;
  std::vector<ValueRef> counts;
  for (const NodeId route : routes) counts.push_back(dropped_by(graph, route));
  const auto layers = static_cast<std::int64_t>(counts.size());
  training.dropped = layers == 1 ? counts[0]
                                 : add_node(graph, "AddN", "dropped_tokens", std::move(counts),
                                            {{"T", DType::Float32}, {"N", layers}});
}

}  // namespace braid::worker
