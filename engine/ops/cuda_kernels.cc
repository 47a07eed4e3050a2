// Gives the ops their CUDA kernels; no_cuda.cc stands in where there is no CUDA.
#include "engine/ir/op.h"

namespace braid {

void register_cuda_kernels(OpRegistry& registry);

#define BRAID_CUDA_OPS(stem) void register_##stem##_cuda(OpRegistry& registry);
#include "engine/ops/cuda_ops.def"
#undef BRAID_CUDA_OPS

void register_cuda_kernels(OpRegistry& registry) {
#define BRAID_CUDA_OPS(stem) register_##stem##_cuda(registry);
#include "engine/ops/cuda_ops.def"
#undef BRAID_CUDA_OPS
}

}  // namespace braid
