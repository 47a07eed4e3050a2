// The gradient of a gather whose indices are known when the program is compiled: which rows of dy are added
// to which row of dx is worked out then, so a step needs no sort, and every element of dx is written once,
// its terms added in the order of the indices.
#pragma once

#include "engine/ir/op.h"
#include "engine/ops/array/gather_slices.h"

namespace braid::cuda {

/// dy [outer, n, width] into dx [outer, rows, width]; `indices` [n], int32 or int64. No kernel (run is null)
/// where this does not apply: an index out of range, or sizes beyond 32 bits.
PreparedKernel known_gather_grad(const PrepareContext& c, const GatherSlices& slices, const Tensor& indices);

}  // namespace braid::cuda
