// How strategies find the uses of a table in a training graph, and put others in their place. Thread rule:
// one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace braid::worker {

/// Whether the node takes rows from the table behind this handle, one by one.
inline bool is_gather_of(const Node& node, NodeId handle) {
  return !node.removed && node.op->name == "ResourceGather" && node.inputs[0] == ValueRef{handle, 0};
}

std::vector<NodeId> gathers_of(const Graph& graph, NodeId handle);
/// Gathers and bags.
std::vector<NodeId> lookups_of(const Graph& graph, NodeId handle);

/// The gathers in the order in which a gradient's rows are theirs; nothing where it is not of all of them,
/// each once.
std::optional<std::vector<NodeId>> in_order_of(const Graph& graph, ValueRef indices,
                                               std::vector<NodeId> gathers);

/// Attribute of a gather of ids some of which may be none: the node that makes them, with -1 in their places.
inline constexpr const char* kKnownIds = "_known_ids";
/// The ids whose rows are wanted: what that attribute names, or all that the gather reads.
ValueRef known_ids_of(const Graph& graph, NodeId gather);

/// Whoever used the node's output 0, waited for it or was placed by it has `replacement` in its place; the
/// node goes.
void put_in_place_of(Graph& graph, NodeId old, ValueRef replacement);

/// Nodes before `pull` that read the variable behind this handle do so behind it.
void read_behind(Graph& graph, ValueRef handle, NodeId pull);

/// The variable of a table has this shape on this rank.
void set_variable_shape(Graph& graph, NodeId handle, const Shape& shape);

/// `list` in that shape; -1 for what follows from the others.
ValueRef reshaped(Graph& graph, ValueRef list, std::vector<std::int64_t> shape, const std::string& name);

}  // namespace braid::worker
