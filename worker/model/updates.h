// Which nodes of a graph run in each training step for their effect: what stores the statistics of batch
// normalisation, and counters that the loss reads, such as seeds. Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/model/model_file.h"
#include "worker/model/problems.h"

namespace braid::proto {
class TrainedGraph;
}

namespace braid::worker {

/// Names of nodes: those that the job names; else those in the collection UPDATE_OPS; else the assignments to
/// variables that are not `trained` whose value follows from a batch, and not from gradients, and counters
/// that `roots` read. REQUIRES: feeds are in the graph.
std::vector<std::string> choose_updates(const proto::TrainedGraph& asked, ModelFile& file,
                                        const std::vector<std::string>& roots,
                                        const std::function<bool(const std::string&)>& trained,
                                        Problems& problems);

}  // namespace braid::worker
