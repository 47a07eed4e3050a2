#include "engine/graph/write_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
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

/// Which of some writers each node waits for by what it computes with, not only by shapes and known values.
class OrderOfValues {
 public:
  OrderOfValues(const Plan& plan, const std::set<NodeId>& writers)
      : graph_(plan.program.graph),
        words_((writers.size() + 63) / 64),
        bits_(static_cast<std::size_t>(graph_.size()) * words_) {
    for (const NodeId writer : writers) numbers_.emplace(writer, numbers_.size());
    for (const NodeId id : graph_.topological_order()) {
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (plan.feed_of(node.inputs[i]) < 0 && !uses_shape_only(node, i) &&
            !graph_.known_value(node.inputs[i]))
          follow(id, node.inputs[i].node);
      for (const NodeId control : node.control_inputs) follow(id, control);
    }
  }

  bool has(NodeId id, NodeId writer) const {
    const std::size_t number = numbers_.at(writer);
    return (bits_[static_cast<std::size_t>(id) * words_ + number / 64] >> (number % 64) & 1) != 0;
  }

 private:
  void follow(NodeId id, NodeId before) {
    const std::size_t to = static_cast<std::size_t>(id) * words_;
    for (std::size_t w = 0; w < words_; ++w)
      bits_[to + w] |= bits_[static_cast<std::size_t>(before) * words_ + w];
    if (const auto at = numbers_.find(before); at != numbers_.end())
      bits_[to + at->second / 64] |= std::uint64_t{1} << (at->second % 64);
  }

  const Graph& graph_;
  const std::size_t words_;
  std::map<NodeId, std::size_t> numbers_;
  std::vector<std::uint64_t> bits_;  // by node
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
  std::set<NodeId> all;
  for (const auto& [id, writers] : waits) all.insert(writers.begin(), writers.end());
  // Passes leave alone what has control edges, so there are none without need.
  const OrderOfValues values(plan, all);
  for (const auto& [id, writers] : waits)
    for (const NodeId writer : writers)
      if (!values.has(id, writer)) graph.mutable_node(id).control_inputs.push_back(writer);
}

}  // namespace braid
