// Reductions of a tensor along any axes on the device; the CUDA side of common/reduce.h. The order of
// operations follows from shapes alone.
#pragma once

#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/reduce_formulas.h"

namespace braid::cuda {

/// A kernel that reduces input 0, of shape `shape`, along `axes` (distinct) into output 0 and divides the
/// result by `divisor` (1: not at all). Op and T: Sum, Prod, Max, Min of float, double, int32, int64;
/// SumOfSquares of float, double; And, Or of uint8 (bool).
template <class Op, class T>
PreparedKernel prepare_reduce(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                              T divisor = T(1));

/// Shapes of higher rank may have more axes than kernels take.
inline bool reducible(const OutputInfo& input) { return !input.shape.has_rank() || input.shape.rank() <= 16; }

}  // namespace braid::cuda
