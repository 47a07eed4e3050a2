// Ops of ALLREDUCE with a reduction that looks at each worker's gradient (strategy.reduction ADASUM, MEDIAN,
// TRIMMED_MEAN; worker/strategies/combine.h):
//   braid.CombineGradients(gradients...)    -> what each becomes, the same on all ranks. Each rank combines
//                                              its part of the elements: an all-to-all, for ADASUM an
//                                              all-reduce of the products of each pair, an all-gather.
//   braid.CombineRows(indices, values)      -> values. Of rows that braid.AllGatherRows has gathered: the
//                                              first row of an index becomes what the workers' sums of that
//                                              row become (a worker without it has 0), the others 0. Moves
//                                              nothing.
// Attributes: `combination`, `world`, `trim`; of rows index_rows, value_rows as braid.AllGatherRows has them.
#pragma once

#include "engine/ir/op.h"

namespace braid::worker {
inline constexpr const char* kCombination = "combination";
inline constexpr const char* kTrim = "trim";

void register_combine_ops(OpRegistry& registry);
}  // namespace braid::worker
