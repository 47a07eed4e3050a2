// Sizes that follow from a batch's data get a bound, so that a training step has static shapes: what feature
// columns, tf.sparse.from_dense, safe_embedding_lookup_sparse and lookups over partitions make of dense ids.
// Their values are padded (bounded_values.h); the sums over rows that such graphs end in have known sizes
// again. Thread rule: one thread.
#pragma once

#include "engine/ir/graph.h"

namespace braid::worker {

/// Replaces nodes whose sizes are unknown as far as there are rules. What is left is what a program without
/// known sizes refuses by name. Rows that no element names are rows of zeros, also behind the last one that
/// has some. Nodes that nothing uses any more stay: remove_unused() of tables.h.
void bound_sizes(Graph& graph);

}  // namespace braid::worker
