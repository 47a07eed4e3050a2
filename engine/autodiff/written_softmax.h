// Softmax over the last axis that is written out,
//
//   e = exp(x - max(x));  e / sum(e)
//
// becomes a Softmax node before a graph is differentiated: its gradient is one node too, and attention's
// pattern sees both. The quotient's node keeps its name. Thread rule: as the graph's.
#pragma once

#include "engine/ir/graph.h"

namespace braid {

/// How many there were.
int join_written_softmax(Graph& graph);

}  // namespace braid
