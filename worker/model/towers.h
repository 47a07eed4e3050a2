// In-graph towers, as TensorFlow 1 programs for several GPUs write them: for each of "/gpu:0", "/gpu:1", ...
// the same layers with the same variables, on its part of a tf.split of the batch, and a loss that is the
// mean of theirs. Under strategy MIRRORED such a graph becomes its first tower, which reads the whole batch
// of a replica: with a replica for each tower each computes what its tower does, on its rows. Thread rule:
// pure.
#pragma once

#include <string>

#include "proto/graph.pb.h"

namespace braid::worker {

struct JoinedTowers {
  int count = 0;        // 0: the graph is as it was
  std::string why_not;  // empty where no node asks for a second GPU
};

/// Replaces the parts of `graph` that `loss` is a mean of, or of whose rows, by the first of them, and
/// `prediction` where it joins the towers' rows. `loss` and `prediction`: values; an empty one is none. Nodes
/// of further towers stay, unused.
JoinedTowers join_towers(GraphDef& graph, std::string& loss, std::string& prediction);

/// The GPU that the node asks for; -1: none.
int gpu_of(const NodeDef& node);

}  // namespace braid::worker
