// Rows of variables, gathered by one launch on a device. Thread rule: as kernels (engine/ir/op.h).
#pragma once

#include "engine/ir/op.h"

namespace braid::cuda {

/// Of inputs (handle, indices) for each output: the rows in their own type, or rounded to halves where
/// outputs are such and the rows are float32. An index out of range is reported, and its row is zeros.
PreparedKernel prepare_gathers(const PrepareContext& c);

}  // namespace braid::cuda
