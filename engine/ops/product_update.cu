// CUDA kernels of braid.DescentScale and braid.ProductUpdate: the product's last step reads and writes the
// variable. Products with a kernel of their own (skinny_product.h) are written and added.
#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/skinny_product.h"
#include "engine/ops/common/product_update.h"

namespace braid {
namespace {

constexpr std::size_t kScratchAlignment = 256;

__global__ void descent_scale(const StepParams* params, float* scale) {
  scale[0] = -params->learning_rate * params->grad_scale;
  scale[1] = 1;
}

__global__ void add_scaled(float* w, const float* x, const float* scale, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) w[i] += scale[0] * x[i];
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
  if (g.batch > 1 && ((g.stride_a | g.stride_b | g.stride_y) % 4) != 0) g.alignment_bytes = sizeof(float);
  g.is_scaled = !cuda::is_skinny_product(g);
  const cuda::PreparedGemm gemm = cuda::prepare_gemm(c, g);
  const std::size_t apart =
      (gemm.scratch_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  kernel.scratch_bytes =
      g.is_scaled ? gemm.scratch_bytes : apart + static_cast<std::size_t>(p.elements()) * sizeof(float);
  kernel.run = [gemm, apart, scaled = g.is_scaled, n = p.elements()](const KernelArgs& a) {
    const float* const scale = a.in<float>(UpdateProduct::kScale);
    auto* const variable = a.var<float>(UpdateProduct::kHandle);
    auto* const y = scaled ? variable : reinterpret_cast<float*>(static_cast<std::byte*>(a.scratch) + apart);
    gemm.run({a.in<float>(UpdateProduct::kA), a.in<float>(UpdateProduct::kB), y, nullptr, a.scratch, a.stream,
              scale});
    if (!scaled)
      cuda::launch(add_scaled, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, variable,
                   static_cast<const float*>(y), scale, n);
  };
  return kernel;
}

}  // namespace

void register_product_update_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.DescentScale", prepare_scale);
  registry.add_cuda(
      "braid.ProductUpdate", prepare_update,
      [](const Node&, std::span<const OutputInfo> inputs) { return inputs[0].dtype == DType::Float32; });
}

}  // namespace braid
