// Products of float16 and bfloat16 that cuBLASLt has no algorithm for (lanes that begin at any element):
// operands are widened into scratch memory and multiplied as float32; what is a half is rounded once. Slower
// than a product of float32, and right for every shape.
#pragma once

#include "engine/ops/common/cuda/gemm.h"

namespace braid::cuda {

/// REQUIRES: operands are halves, and the product is not empty. Throws: as prepare_gemm() of float32.
PreparedGemm prepare_widened_gemm(const PrepareContext& c, const Gemm& gemm);

}  // namespace braid::cuda
