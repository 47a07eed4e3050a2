// Products with few columns and long sums for lanes that share their left side (gradients of the weights of a
// mixture's gates): y[lane] = a^T b[lane]. What they cost is reading `a` [k, m], which is read once for all
// lanes; cuBLASLt's batches read it for each lane, with tiles that are mostly empty.
//
// A block has a tile of 64 rows, 32 columns of all lanes side by side, and a chunk of the sum; its warps
// share the chunk. The block that finishes a tile last adds the chunks' sums in their order. Arithmetic is
// float32.
#pragma once

#include "engine/ops/common/cuda/gemm.h"

namespace braid::cuda {

/// Whether `gemm` is such a batch: float32, at least two lanes of 2 to 16 columns, long sums, many rows.
bool is_skinny_product(const Gemm& gemm);

/// REQUIRES: is_skinny_product(gemm).
PreparedGemm prepare_skinny_product(const PrepareContext& c, const Gemm& gemm);

}  // namespace braid::cuda
