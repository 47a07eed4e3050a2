// Shape inference: fills Node::outputs by the ops' rules, and Node::known_values with what is known before
// the program runs: constants, Shape, Size and Rank of static shapes, and everything small that follows from
// those (engine/ir/constant_folder.h). Thread rule: the graph's thread.
#pragma once

#include <span>

#include "engine/ir/graph.h"

namespace braid {

/// A value that is given from outside instead of computed, and what is known about it.
struct FeedInfo {
  ValueRef value;
  DType dtype = DType::Float32;
  Shape shape;  // static
};

/// Infers one node from what is known of its inputs.
/// Throws: InvalidArgument: "[Op] node 'name': ...".
void infer_node(Graph& graph, NodeId id);

/// Infers all live nodes again, in topological order, with the feeds' types and shapes in place of what was
/// inferred for those values. Throws: InvalidArgument; also when a feed contradicts its node's type or shape.
void infer_graph(Graph& graph, std::span<const FeedInfo> feeds);

/// The op uses the shape of input `input` and not its value.
bool reads_shape_only(const Node& node, std::size_t input);

}  // namespace braid
