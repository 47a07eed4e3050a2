// What passes that put one node in the place of others have in common. Thread rule: one thread.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/program/plan.h"

namespace braid {

/// Whether another node may do what this one does: nothing orders it, and it is not fed.
bool is_plain(const Plan& plan, const Node& node);
/// Whether one of its values is a fetch.
bool is_fetched(const Plan& plan, NodeId id);
/// Whether it does nothing but make values for other nodes: it is plain, no target, and nothing of it is
/// fetched.
bool is_inner(const Plan& plan, NodeId id);
/// Whether nothing keeps the node, whose inputs are the graph's, from a device that has kernels for its op.
bool suits_device(const Plan& plan, const Node& node);
/// Whether both are on one stream, device and colocation.
bool together(const Node& a, const Node& b);
/// Whether both have equal attributes, without annotations (_name). Tensors count as different.
bool same_attributes(const Node& a, const Node& b);

/// Whether a node comes, by inputs and control edges, after another.
bool follows_from(const Graph& graph, NodeId id, NodeId from);

/// Adds a copy of a node, whose outputs are inferred anew, under `name` or a name like it.
NodeId add_node(Graph& graph, Node node, const std::string& name);
/// Puts `node`, whose first outputs are what those of `old` were, in the place of `old`; its name is that of
/// `old` and `suffix`. Whoever uses or names `old` does so with the new node; `old` is left for prune.
NodeId replace(Plan& plan, NodeId old, Node node, const char* suffix);
/// Whoever is colocated with `old`, or is its backward node, is so with `made`, which does its work. Removed
/// nodes too, which still link colocation groups.
void take_place(Plan& plan, NodeId old, NodeId made);
/// Whoever uses or names `old`, which has one output, does so with `with` and its node.
void replace_with(Plan& plan, NodeId old, ValueRef with);
/// Whoever uses `from`, fetches included, uses `to`.
void replace_value(Plan& plan, ValueRef from, ValueRef to);

/// Who uses what, as the graph is when this is made.
class Users {
 public:
  explicit Users(const Graph& graph);

  /// Nodes that name `id` as input or control input, once for each time.
  const std::vector<NodeId>& of(NodeId id) const;
  /// Those of them that use more of it than its shape.
  std::vector<NodeId> readers(NodeId id) const;
  /// Whether `reader` is the only one that uses `value`, or waits for its node.
  bool is_only_reader(NodeId reader, ValueRef value) const;
  /// Whether a node waits for it by a control edge.
  bool is_awaited(NodeId id) const;
  /// Whether a node waits for it, or is colocated with it.
  bool is_named(NodeId id) const { return named_.contains(id); }

 private:
  const Graph* graph_;
  std::unordered_map<NodeId, std::vector<NodeId>> users_;
  std::unordered_set<NodeId> named_;
};

}  // namespace braid
