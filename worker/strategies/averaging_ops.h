// The op of local SGD (strategy.average_every_steps):
//   braid.AverageVariables(handles..., [loss, stop votes]) -> [loss, stop votes]
// At every `every`-th step, and at the last one, each variable becomes the sum over ranks of `weight` times
// theirs, in one all-reduce; so do the loss, and the votes, which are added up. In other steps nothing is
// sent, the loss is this rank's own and the votes are 0. Attributes: every, weight (rank's share of the
// rows), riders (whether it has loss and votes). On the host alone: a captured graph takes no branches.
#pragma once

#include "engine/ir/op.h"

namespace braid::worker {
void register_averaging_ops(OpRegistry& registry);
}  // namespace braid::worker
