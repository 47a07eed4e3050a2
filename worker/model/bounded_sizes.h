// Sizes that follow from a batch's data get a bound, so that a training step has static shapes: what feature
// columns, tf.sparse.from_dense, safe_embedding_lookup_sparse and lookups over partitions make of dense ids.
// Their values are padded (bounded_values.h); the sums over rows that such graphs end in have known sizes
// again. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

/// Replaces nodes whose sizes are unknown as far as there are rules. Gives the nodes that read such values
/// and have no rule for it: where the results need them, a program without known sizes refuses. Rows that no
/// element names are rows of zeros, also behind the last one that has some. Nodes that nothing uses any more
/// stay: remove_unused() of tables.h.
///
/// roots: values whose elements are rows of a gradient, or where these belong: those that are bounded get a
/// known size, with zeros for places that do not count.
std::vector<NodeId> bound_sizes(Graph& graph, const std::vector<std::string>& roots = {});

}  // namespace braid::worker
