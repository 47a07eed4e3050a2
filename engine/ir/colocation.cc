#include "engine/ir/colocation.h"

namespace braid {
namespace {

bool is_target(const Node& node) { return node.attrs.get(kColocationTarget, node.colocate_with == kNoNode); }

}  // namespace

ColocationGroups::ColocationGroups(const Graph& graph) : graph_(&graph) {
  leader_.resize(static_cast<std::size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id) leader_[static_cast<std::size_t>(id)] = id;
  const auto root = [&](NodeId id) {
    while (leader(id) != id) id = leader_[static_cast<std::size_t>(id)] = leader(leader(id));
    return id;
  };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const NodeId with = graph.node(id).colocate_with;
    if (with != kNoNode) leader_[static_cast<std::size_t>(root(id))] = root(with);
  }
  for (NodeId id = 0; id < graph.size(); ++id) leader_[static_cast<std::size_t>(id)] = root(id);
  for (NodeId id = 0; id < graph.size(); ++id) groups_[leader(id)].push_back(id);
  std::erase_if(groups_, [](const auto& group) { return group.second.size() < 2; });
}

std::vector<NodeId> ColocationGroups::leaders() const {
  std::vector<NodeId> leaders;
  for (const auto& [leader, members] : groups_) leaders.push_back(leader);
  return leaders;
}

std::vector<NodeId> ColocationGroups::members(NodeId leader) const {
  const auto group = groups_.find(leader);
  return group == groups_.end() ? std::vector<NodeId>{leader} : group->second;
}

ColocationGroups::Decision ColocationGroups::decide(NodeId leader, FunctionRef<int(NodeId)> id_of) const {
  Decision decision;
  for (const bool targets : {true, false}) {
    for (const NodeId id : members(leader)) {
      const Node& node = graph_->node(id);
      if (is_target(node) != targets || (node.removed && !targets) || id_of(id) == kNoStream) continue;
      if (decision.from == kNoNode)
        decision.from = id;
      else if (decision.against == kNoNode && id_of(id) != id_of(decision.from))
        decision.against = id;
    }
    if (decision.from != kNoNode) break;
  }
  return decision;
}

}  // namespace braid
