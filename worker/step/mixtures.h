// Sparse mixtures of experts in a training graph, of the ops of engine/ops/sparse/experts.cc: which groups of
// tokens a worker has, and how many choices a step drops. Thread rule: one thread.
#pragma once

#include "worker/step/training_graph.h"

namespace braid::worker {

/// Groups of tokens are those of a step of all workers that share its rows: each worker has its share of
/// them, and where there is one each worker is one. Throws: InvalidArgument with the node.
void share_token_groups(TrainingGraph& training, int workers);

/// Sets `dropped`, of this worker's rows, where the graph has such layers.
void count_dropped_tokens(TrainingGraph& training);

}  // namespace braid::worker
