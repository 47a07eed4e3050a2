// Adds a node to a graph whose ops may have no kernel for the types of its inputs. Thread rule: the graph's
// thread.
#pragma once

#include "engine/ir/graph.h"

namespace braid {

/// Adds the node, with Casts around it where its op has no kernel for its inputs' type (widen.h); gives what
/// has its name and outputs. Throws: InvalidArgument, as Graph::add.
NodeId place_node(Graph& graph, Node node);

}  // namespace braid
