// Matrix products of integers, which cuBLASLt does not have: a thread an output, its terms in order, in
// arithmetic that wraps as the host's does.
#pragma once

#include "engine/ops/common/cuda/gemm.h"

namespace braid::cuda {

/// REQUIRES: int32 or int64, no epilogue. Needs no scratch.
PreparedGemm prepare_integer_matmul(const Gemm& gemm);

}  // namespace braid::cuda
