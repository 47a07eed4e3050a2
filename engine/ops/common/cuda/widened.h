// Kernels of float32 for ops that take halves (engine/ops/common/halves.h), where the device has none for
// halves: what is a half is widened into scratch memory, and the result narrowed. Thread rule: as the kernels
// that it runs.
#pragma once

#include "engine/ir/op.h"

namespace braid::cuda {

/// `of_float32` prepares the kernel for a context whose inputs and outputs are float32 where those of `c` are
/// halves. Inputs of which it reads the shape only have null pointers or any memory.
PreparedKernel prepare_widened(const PrepareContext& c, const PrepareFn& of_float32);

}  // namespace braid::cuda
