#include "engine/import/colocate.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "base/log.h"
#include "engine/ir/colocation.h"

namespace braid {
namespace {

/// Names that constraints have put together.
class NameGroups {
 public:
  int find(std::string_view name) {
    const auto [at, is_new] = index_.try_emplace(name, static_cast<int>(parent_.size()));
    if (is_new) parent_.push_back(at->second);
    return root(at->second);
  }
  void join(std::string_view a, std::string_view b) {
    const int root_a = find(a), root_b = find(b);
    parent_[static_cast<std::size_t>(root_b)] = root_a;
  }
  bool contains(std::string_view name) const { return index_.contains(name); }

 private:
  int root(int i) {
    while (parent(i) != i) i = parent(i) = parent(parent(i));
    return i;
  }
  int& parent(int i) { return parent_[static_cast<std::size_t>(i)]; }

  std::unordered_map<std::string_view, int> index_;
  std::vector<int> parent_;
};

struct Member {
  NodeId id;
  bool is_target;  // is with nobody, others are with it
  bool is_named;   // not a part of one that became several
};

void link(const std::vector<Member>& members, Graph& graph) {
  // Of nodes that name each other, or none that is there, the last is the one that the others lead to.
  auto leader = members.back();
  for (auto at = members.rbegin(); at != members.rend(); ++at)
    if (at->is_target && at->is_named) leader = *at;
  if (!leader.is_target) graph.mutable_node(leader.id).attrs.set(kColocationTarget, false);
  for (const Member member : members) {
    if (member.id == leader.id) continue;
    Node& node = graph.mutable_node(member.id);
    node.colocate_with = leader.id;
    if (member.is_target) node.attrs.set(kColocationTarget, true);
  }
}

}  // namespace

void link_colocated(const PendingGraph& pending, const std::vector<int>& origin, Graph& graph) {
  NameGroups names;
  std::string first_missing;
  int missing = 0;
  for (const PendingNode& node : pending.nodes) {
    for (const std::string& target : node.colocate_with) {
      names.join(node.name, target);
      // Tools that prune graphs leave such names behind; nodes that were not wanted or not loadable are no
      // news.
      const bool is_missing = graph.find(node.name) != kNoNode && !pending.left_out.contains(target) &&
                              !pending.names.contains(target);
      if (is_missing && missing++ == 0)
        first_missing = fmt::format("node '{}' is colocated with '{}'", node.name, target);
    }
  }
  if (missing > 0)
    log_warning("{}, which is not in the graph{}", first_missing,
                missing > 1 ? fmt::format("; {} more are with such nodes", missing - 1) : "");
  std::map<int, std::vector<Member>> groups;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const PendingNode& node = pending.nodes[static_cast<std::size_t>(origin[static_cast<std::size_t>(id)])];
    if (names.contains(node.name))
      groups[names.find(node.name)].push_back(
          {id, node.colocate_with.empty(), graph.node(id).name == node.name});
  }
  for (const auto& [name, members] : groups)
    if (members.size() > 1) link(members, graph);
}

}  // namespace braid
