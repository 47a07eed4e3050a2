// Order that edges give without data. A node whose value is known before the program runs needs no producer
// any more, nor does an input of which only the shape is used; but what stands above them may write variables
// (`Assign -> Identity of a constant -> Read`), and who comes behind must still wait. Thread rule: one
// thread; the graph must outlive it; nodes may be added, and take the place of inputs.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace braid {

/// Whether one of its handles is of a variable that it changes.
bool writes_variable(const Node& node);
/// Whether it changes a variable, or does something else that others may wait for.
bool writes(const Node& node);

class WriteOrder {
 public:
  explicit WriteOrder(const Graph& graph);

  /// The last writing nodes on the paths that end at `id`, itself among them; ascending.
  std::vector<NodeId> writes_until(NodeId id) const;

 private:
  const Graph& graph_;
  std::vector<char> is_late_;  // by node: whether there are any
};

}  // namespace braid
