// Where the gradients of rows stand among the buckets of dense gradients, in the one order that collectives
// have. Thread rule: pure.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

/// How many of the buckets, which are in the order in which backward makes them, go before `rows`. Behind go
/// those with gradients that are made of the rows' or beside them, so that tables are updated while they
/// travel. So do the last ones before, up to `bytes` (what of the rows travels) and a quarter of all: the
/// rows would wait for these, whose products are among the last.
std::size_t buckets_before_rows(const Graph& graph, const std::vector<std::vector<VariableGradient>>& buckets,
                                const std::vector<VariableGradient>& rows, double bytes);

}  // namespace braid::worker
