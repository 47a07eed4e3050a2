// What `braid graph check` and `braid graph run` do with a graph that somebody else has made: checked,
// imported, fitted to its feeds, compiled and run once on the host. Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/ir/tensor.h"
#include "proto/graph.pb.h"

namespace braid::fuzz {

/// Feeds that are no values of the graph are left out; placeholders without one get zeros where their shapes
/// are known and small. Throws: what the product throws.
void check_and_run(const GraphDef& graph, std::map<std::string, Tensor> feeds,
                   const std::vector<std::string>& fetches);

}  // namespace braid::fuzz
