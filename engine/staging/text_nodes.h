// The nodes of a part of a graph that make text: programs only take text that is fed, so these are evaluated
// on the host, record by record, between programs. Text nodes are those whose op makes strings
// (OpDef::fold) or whose outputs are strings: views, and Concat and Pack of strings among them.
// Thread rule: const access from any thread; advance() changes nothing but `known`.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"

namespace braid {

class TextNodes {
 public:
  using Known = std::map<ValueRef, Tensor>;

  /// Of the part above `roots`, up to the values `given`. `graph` outlives it.
  TextNodes(const Graph& graph, const std::vector<ValueRef>& roots, const std::vector<ValueRef>& given);

  bool empty() const { return nodes_.empty(); }
  bool makes(ValueRef value) const {
    return std::find(nodes_.begin(), nodes_.end(), value.node) != nodes_.end();
  }
  /// Evaluates every text node whose inputs are known and adds its outputs. What comes back are inputs that
  /// others still wait for and that no text node makes; empty: all are done.
  /// Throws: InvalidArgument with the node, for values that its op refuses.
  std::vector<ValueRef> advance(Known& known) const;

 private:
  std::vector<Tensor> evaluate(const Node& node, const std::vector<const Tensor*>& inputs) const;

  const Graph& graph_;
  std::vector<NodeId> nodes_;  // in topological order
};

}  // namespace braid
