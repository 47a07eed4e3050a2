// Batch normalisation over the rows of all ranks (strategy.sync_batch_norm), as a rewrite: a node that
// normalises with statistics of the batch becomes one that adds up its sums over the ranks, and its gradient
// likewise. Nodes keep inputs, outputs and attributes (engine/ops/nn/fused_batch_norm.cc has the formulas):
//
//   braid.SyncBatchNorm      n, sum x over all ranks; then sum (x - m)^2: two small all-reduces
//   braid.SyncBatchNormGrad  sum dy and sum dy (x - m): one. d_scale and d_offset are of this rank's rows, as
//                            other gradients are.
//
// Sums over a channel are in double, in blocks of rows, then over ranks as the communicator adds. On the
// host.
#pragma once

#include <vector>

#include "engine/ir/op.h"

namespace braid::worker {

/// Result: the nodes, which are collectives, to be put in order with the others.
std::vector<NodeId> synchronize_batch_norms(Graph& graph);

void register_sync_batch_norm_ops(OpRegistry& registry);
}  // namespace braid::worker
