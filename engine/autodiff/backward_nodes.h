// Adds nodes on behalf of a forward node: named "gradients/<forward name>/<Op>", with its device, and its
// stream or colocation unless its include_grad is off. Thread rule: the graph's thread.
#pragma once

#include <string_view>
#include <vector>

#include "engine/ir/graph.h"

namespace braid {

class BackwardNodes {
 public:
  explicit BackwardNodes(Graph& graph) : graph_(graph) {}

  /// Output 0 of a new node. Ops that only fit one shape to another (braid.ReduceToShapeOf,
  /// braid.ReshapeLike) give their input where the shapes are known to be equal.
  ValueRef add(NodeId forward, std::string_view op, std::vector<ValueRef> inputs, AttrMap attrs = {});
  ValueRef constant(NodeId forward, Tensor value);
  const Graph& graph() const { return graph_; }

 private:
  Graph& graph_;
};

}  // namespace braid
