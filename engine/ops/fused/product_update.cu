// CUDA kernels of braid.DescentScale and braid.ProductUpdate: the product's last step reads and writes the
// variable.
#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/halves.h"
#include "engine/ops/fused/product_update.h"

namespace braid {
namespace {

__global__ void descent_scale(const StepParams* params, float* scale) {
  scale[0] = -params->learning_rate * params->grad_scale;
  scale[1] = 1;
}

PreparedKernel prepare_scale(const PrepareContext&) {
  PreparedKernel kernel;
  kernel.run = [](const KernelArgs& a) {
    cuda::launch(descent_scale, 1, 1, 0, a.stream, a.params, a.out<float>(0));
  };
  return kernel;
}

PreparedKernel prepare_update(const PrepareContext& c) {
  const UpdateProduct p(c.node, c.inputs[0].shape, c.inputs[2].shape, c.inputs[3].shape);
  PreparedKernel kernel;
  if (p.elements() == 0 || p.k == 0) {
    kernel.run = [](const KernelArgs&) {};
    return kernel;
  }
  cuda::Gemm g;
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.transpose_a = p.transpose_a;
  g.transpose_b = p.transpose_b;
  g.batch = p.lanes;
  g.stride_a = p.own_a ? p.m * p.k : 0;
  g.stride_b = p.own_b ? p.k * p.n : 0;
  g.stride_y = p.m * p.n;
  g.dtype = c.inputs[UpdateProduct::kA].dtype;
  g.result = DType::Float32;
  const auto bytes = static_cast<std::int64_t>(dtype_size(g.dtype));
  if (g.batch > 1 && (((g.stride_a | g.stride_b) * bytes) % 16 != 0 || g.stride_y % 4 != 0))
    g.alignment_bytes = static_cast<std::uint32_t>(bytes);
  g.is_scaled = true;
  const cuda::PreparedGemm gemm = cuda::prepare_gemm(c, g);
  kernel.scratch_bytes = gemm.scratch_bytes;
  kernel.run = [gemm](const KernelArgs& a) {
    gemm.run({a.inputs[UpdateProduct::kA], a.inputs[UpdateProduct::kB], a.var<float>(UpdateProduct::kHandle),
              nullptr, a.scratch, a.stream, a.in<float>(UpdateProduct::kScale)});
  };
  return kernel;
}

}  // namespace

void register_product_update_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.ProductUpdate"});
  registry.add_cuda("braid.DescentScale", prepare_scale);
  registry.add_cuda(
      "braid.ProductUpdate", prepare_update,
      [](const Node&, std::span<const OutputInfo> inputs) { return inputs[0].dtype == DType::Float32; });
}

}  // namespace braid
