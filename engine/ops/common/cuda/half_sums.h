// Sums and means of float16 and bfloat16 along any axes on the device, added up and given in float32: those
// of axes that lie together and are not the last (the gradient of a bias, the mean of an image's pixels) by
// kernels that read halves, others by that of float32 behind a widening into scratch. The order of additions
// follows from shapes alone.
#pragma once

#include <vector>

#include "engine/ir/op.h"

namespace braid::cuda {

/// Sums input 0, of halves and of shape `shape`, along `axes` (distinct) into output 0, float32, divided by
/// `divisor`. `of_float32`: the same of a context whose input is float32.
PreparedKernel prepare_half_sum(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                                const PrepareFn& of_float32, float divisor = 1);

}  // namespace braid::cuda
