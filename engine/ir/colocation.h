// Colocation groups: nodes that Node::colocate_with links, over whatever chain, have one stream. It is that
// of the group's targets, which are the nodes that others are with and that are with nobody; only where no
// target has an id it is that of the other nodes. Links of removed nodes count, so a group stays one when
// what its nodes are with is pruned. Thread rule: a value, made of the graph as it is.
#pragma once

#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "engine/ir/graph.h"

namespace braid {

/// Whether the node is a target, where that is another than its links say: of several targets of one group
/// all but one are linked to that one, and a group of which no target is there has a node that is linked to
/// nobody.
inline constexpr const char* kColocationTarget = "_colocation_target";

class ColocationGroups {
 public:
  explicit ColocationGroups(const Graph& graph);

  /// The same for all nodes of a group; the node itself where it is alone.
  NodeId leader(NodeId id) const { return leader_[static_cast<std::size_t>(id)]; }
  bool is_grouped(NodeId id) const { return groups_.contains(leader(id)); }
  /// Of groups of two nodes and more, ascending.
  std::vector<NodeId> leaders() const;
  /// Removed nodes too, ascending.
  std::vector<NodeId> members(NodeId leader) const;

  /// Whose id is the group's, and the first one that should not differ from it and does.
  struct Decision {
    NodeId from = kNoNode;
    NodeId against = kNoNode;
  };
  /// `id_of` gives the id that somebody has written for a node, or kNoStream. A node that is removed counts
  /// where it is a target.
  Decision decide(NodeId leader, FunctionRef<int(NodeId)> id_of) const;

 private:
  const Graph* graph_;
  std::vector<NodeId> leader_;
  std::map<NodeId, std::vector<NodeId>> groups_;
};

}  // namespace braid
