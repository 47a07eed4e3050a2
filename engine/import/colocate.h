// Colocation constraints (`_class`, "loc:@name") as links of a Graph. As in TensorFlow a node is with all of
// its targets, and groups that meet in a node are one; that also holds where a target is not in the graph.
// Every node of a group leads to one of them (Node::colocate_with); engine/ir/colocation.h says whose
// stream it takes. Thread rule: the graph's thread.
#pragma once

#include <vector>

#include "engine/import/pending_graph.h"
#include "engine/ir/graph.h"

namespace braid {

/// `graph` has those nodes of `pending` that could be loaded, some as several nodes: `origin` is the index in
/// `pending` by node of `graph`. Warns of targets that are not in the file.
void link_colocated(const PendingGraph& pending, const std::vector<int>& origin, Graph& graph);

}  // namespace braid
