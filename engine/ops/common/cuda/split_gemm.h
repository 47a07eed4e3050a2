// Products of lanes whose sums are long and whose outputs are few (gradients of the weights of small layers):
// cuBLASLt gives a tile of outputs to a processor and does not split the sums of a batch, so most processors
// would have nothing to do. Chunks of the sums are a batch of their own here, and are added in their order.
#pragma once

#include "engine/ops/common/cuda/gemm.h"

namespace braid::cuda {

/// Into how many chunks the sums of such a batch are split; 1: it is left whole. Chunks are never split
/// again.
std::int64_t chunks_of_sum(const Gemm& gemm);

/// REQUIRES: chunks_of_sum(gemm) > 1.
PreparedGemm prepare_split_gemm(const PrepareContext& c, const Gemm& gemm);

}  // namespace braid::cuda
