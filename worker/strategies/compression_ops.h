// braid.CompressedAllReduce(gradients..., handles of errors..., [handles of q...]) -> the gradients' sums
// over ranks, as they come out of compression (worker/strategies/compression.h); errors are written.
//
//   INT8       two rounds, as a ring has: an all-to-all of each rank's parts, whose owner adds them up, and
//              an all-gather of the sums, which are encoded again. What the second loses the owner adds to
//              its own error.
//   TOP_K      an all-gather of places and values, added in the order of ranks
//   POWER_SGD  all-reduces of p, with what is not compressed, and of q. Errors and q are there for the
//              variables that are compressed, one for each whose `ranks` is above 0. q is what the last step
//              found, alike on all ranks.
//
// Attributes: compression (a Compression.Kind), block, keep, ranks (of each variable). On the host.
#pragma once

#include "engine/ir/op.h"

namespace braid::worker {
void register_compression_ops(OpRegistry& registry);
}  // namespace braid::worker
