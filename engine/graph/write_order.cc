#include "engine/graph/write_order.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"

namespace braid {

bool writes_variable(const Node& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Access access = handle_access(*node.op, i);
    if (access == Access::Write || access == Access::ReadWrite) return true;
  }
  return false;
}

bool writes(const Node& node) { return node.op->side_effect || writes_variable(node); }

WriteOrder::WriteOrder(const Graph& graph) : graph_(graph), is_late_(static_cast<std::size_t>(graph.size())) {
  const auto is_late = [&](NodeId id) { return is_late_[static_cast<std::size_t>(id)] != 0; };
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    is_late_[static_cast<std::size_t>(id)] =
        writes(node) || std::any_of(node.control_inputs.begin(), node.control_inputs.end(), is_late) ||
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef in) { return is_late(in.node); });
  }
}

std::vector<NodeId> WriteOrder::writes_until(NodeId id) const {
  std::set<NodeId> seen, found;
  std::vector<NodeId> open;
  const auto visit = [&](NodeId at) {
    const bool is_new = static_cast<std::size_t>(at) >= is_late_.size();
    if ((is_new || is_late_[static_cast<std::size_t>(at)]) && seen.insert(at).second) open.push_back(at);
  };
  visit(id);
  while (!open.empty()) {
    const Node& node = graph_.node(open.back());
    open.pop_back();
    if (writes(node)) {
      found.insert(node.id);
      continue;
    }
    for (const ValueRef input : node.inputs) visit(input.node);
    for (const NodeId control : node.control_inputs) visit(control);
  }
  return {found.begin(), found.end()};
}

namespace {

constexpr std::size_t kMostWriters = 64;

/// Which of some writers each node waits for by what it computes with, not only by shapes and known values.
class OrderOfValues {
 public:
  /// `writers`: rising, kMostWriters at most. `order`: topological.
  OrderOfValues(const Plan& plan, std::span<const NodeId> writers, const std::vector<NodeId>& order)
      : writers_(writers), found_(static_cast<std::size_t>(plan.program.graph.size())) {
    const Graph& graph = plan.program.graph;
    for (const NodeId id : order) {
      const Node& node = graph.node(id);
      std::uint64_t found = 0;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (plan.feed_of(node.inputs[i]) < 0 && !uses_shape_only(node, i) &&
            !graph.known_value(node.inputs[i]))
          found |= with(node.inputs[i].node);
      for (const NodeId control : node.control_inputs) found |= with(control);
      found_[static_cast<std::size_t>(id)] = found;
    }
  }

  /// False also for one that is not of these.
  bool lacks(NodeId id, NodeId writer) const {
    const std::uint64_t bit = bit_of(writer);
    return bit != 0 && (found_[static_cast<std::size_t>(id)] & bit) == 0;
  }

 private:
  std::uint64_t bit_of(NodeId writer) const {
    const auto at = std::ranges::lower_bound(writers_, writer);
    return at == writers_.end() || *at != writer ? 0 : std::uint64_t{1} << (at - writers_.begin());
  }
  std::uint64_t with(NodeId before) const {
    return found_[static_cast<std::size_t>(before)] | bit_of(before);
  }

  const std::span<const NodeId> writers_;
  std::vector<std::uint64_t> found_;  // by node
};

}  // namespace

void keep_write_order(Plan& plan) {
  Graph& graph = plan.program.graph;
  const WriteOrder order(graph);
  std::vector<std::pair<NodeId, std::vector<NodeId>>> waits;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || plan.is_fed(node)) continue;
    std::set<NodeId> writers;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueRef input = node.inputs[i];
      if (plan.feed_of(input) >= 0) continue;
      if (!uses_shape_only(node, i) && !graph.known_value(input)) continue;
      const std::vector<NodeId> above = order.writes_until(input.node);
      writers.insert(above.begin(), above.end());
    }
    if (!writers.empty()) waits.emplace_back(id, std::vector<NodeId>(writers.begin(), writers.end()));
  }
  if (waits.empty()) return;
  std::vector<NodeId> all;
  for (const auto& [id, writers] : waits) all.insert(all.end(), writers.begin(), writers.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  // Passes leave alone what has control edges, so there are none without need.
  const std::vector<NodeId> topological = graph.topological_order();
  for (std::size_t first = 0; first < all.size(); first += kMostWriters) {
    const OrderOfValues values(
        plan, std::span(all).subspan(first, std::min(kMostWriters, all.size() - first)), topological);
    for (const auto& [id, writers] : waits)
      for (const NodeId writer : writers)
        if (values.lacks(id, writer)) graph.mutable_node(id).control_inputs.push_back(writer);
  }
}

}  // namespace braid
