// Gives the ops their CUDA kernels; no_cuda.cc stands in where there is no CUDA.
#include "engine/ir/op.h"
#include "engine/ops/common/cuda/box_kernel.h"
#include "engine/ops/common/device_boxes.h"

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

PreparedKernel device_box_kernel(const PrepareContext& c, BoxPlan plan) { return cuda::box_kernel(c, plan); }

}  // namespace braid
