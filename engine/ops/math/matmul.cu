// CUDA kernel of MatMul (common/cuda/gemm.h).
#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/halves.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  cuda::Gemm g;
  g.transpose_a = c.attr<bool>("transpose_a", false);
  g.transpose_b = c.attr<bool>("transpose_b", false);
  g.m = c.outputs[0].shape[0];
  g.n = c.outputs[0].shape[1];
  g.k = c.inputs[0].shape[g.transpose_a ? 0 : 1];
  g.dtype = c.inputs[0].dtype;
  g.result = c.outputs[0].dtype;
  return cuda::gemm_kernel(c, g);
}

}  // namespace

void register_matmul_cuda(OpRegistry& registry) {
  registry.add_cuda("MatMul", prepare);
  cuda_takes_halves({"MatMul"});
}

}  // namespace braid
