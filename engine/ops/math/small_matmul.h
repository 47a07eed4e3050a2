// Many products of small matrices (interactions of features, mixtures of experts): what they cost is reading
// and writing them, so each block copies some whole products into shared memory, computes 4 x 4 outputs a
// thread in float32, and writes them back side by side. cuBLASLt's kernels for large tiles waste most of
// their work on such shapes.
#pragma once

#include "engine/ops/common/cuda/gemm.h"

namespace braid::cuda {

/// Whether `gemm` is such a batch: float32, many products of matrices (not vectors), outputs and sums short.
bool is_small_matmul(const Gemm& gemm);

/// REQUIRES: is_small_matmul(gemm) and no epilogue. Needs no scratch.
PreparedGemm prepare_small_matmul(const Gemm& gemm);

}  // namespace braid::cuda
