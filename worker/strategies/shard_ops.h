// Ops of ALLREDUCE with optimizer states that are spread over the ranks (strategy.shard; ZeRO: Rajbhandari et
// al. 2020, arXiv 1910.02054). The gradients of a bucket lie one behind another, with zeros behind them; each
// rank has a part of that row, as long as the others'.
//   braid.ReduceScatterGradients(gradients...)            -> part [n / world], summed over ranks
//   braid.OwnPart(gradients...)                           -> part [n / world] of gradients that are summed
//   braid.ApplyPart(handles of variables..., handles of slots' parts..., part)
//                                                            updates what of the variables is in the part;
//                                                            attributes as braid.ApplyOptimizer has them
//   braid.GatherVariables(handles of variables...)           each rank's part goes to all others
// Attribute `part`: elements of a rank's part. On the host.
#pragma once

#include "engine/ir/op.h"

namespace braid::worker {
inline constexpr const char* kPart = "part";

void register_shard_ops(OpRegistry& registry);
}  // namespace braid::worker
