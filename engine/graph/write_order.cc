#include "engine/graph/write_order.h"

#include <algorithm>
#include <set>

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
  for (const auto& [id, writers] : waits) {
    std::vector<NodeId>& controls = graph.mutable_node(id).control_inputs;
    for (const NodeId writer : writers)
      if (std::find(controls.begin(), controls.end(), writer) == controls.end()) controls.push_back(writer);
  }
}

}  // namespace braid
