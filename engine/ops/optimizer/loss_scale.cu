// CUDA kernels of braid.NotFinite and braid.LossScaleStep.
#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/optimizer/loss_scale.h"

namespace braid {
namespace {

constexpr int kTile = 16 * cuda::kThreads;
constexpr int kMost = 150;  // a kernel's arguments are 4 KiB

struct Tensors {
  struct One {
    const float* x;
    std::int64_t elements;
    std::int32_t first_block;
    bool packed;
  };
  int count = 0;
  One at[kMost];
};
static_assert(sizeof(Tensors) + sizeof(float*) <= 4096);

/// Every thread that finds one writes the same.
__global__ void __launch_bounds__(cuda::kThreads)
    find_not_finite(const __grid_constant__ Tensors tensors, float* found) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const Tensors::One& tensor = cuda::part_of_block(tensors, block);
  const std::int64_t begin = static_cast<std::int64_t>(block - tensor.first_block) * kTile;
  const std::int64_t end = begin + kTile < tensor.elements ? begin + kTile : tensor.elements;
  float sum = 0;  // of what is 0 for a number and NaN for others
  std::int64_t rest = begin;
  if (tensor.packed) {
    rest = end / 4 * 4;  // `begin` is on a boundary
#pragma unroll 4
    for (std::int64_t i = begin + threadIdx.x * 4; i < rest; i += cuda::kThreads * 4) {
      const auto x = *reinterpret_cast<const cuda::Pack<float, 4>*>(tensor.x + i);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum += __fmul_rn(x.at[e], 0.0F);
    }
  }
  for (std::int64_t i = rest + threadIdx.x; i < end; i += cuda::kThreads) sum += __fmul_rn(tensor.x[i], 0.0F);
  if (!(sum == 0.0F)) *found = 1.0F;
}

PreparedKernel prepare_not_finite(const PrepareContext& c) {
  std::vector<std::int64_t> elements;
  for (const OutputInfo& input : c.inputs) elements.push_back(input.shape.elements());
  PreparedKernel kernel;
  kernel.run = [elements = std::move(elements), device = c.accelerator](const KernelArgs& a) {
    device->fill_zero(a.outputs[0], sizeof(float), a.stream);
    Tensors tensors;
    std::int32_t blocks = 0;
    const auto flush = [&] {
      if (blocks != 0)
        cuda::launch(find_not_finite, static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream, tensors,
                     a.out<float>(0));
      tensors.count = 0;
      blocks = 0;
    };
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (elements[i] == 0) continue;
      const auto* const x = static_cast<const float*>(a.inputs[i]);
      tensors.at[tensors.count++] = {x, elements[i], blocks, cuda::is_aligned16(x)};
      blocks += static_cast<std::int32_t>((elements[i] + kTile - 1) / kTile);
      if (tensors.count == kMost) flush();
    }
    flush();
  };
  return kernel;
}

constexpr int kMostFlags = 256;
struct Flags {
  int count = 0;
  const float* at[kMostFlags];
};

__global__ void step_kernel(const __grid_constant__ Flags flags, float growth, float* scale, float* good,
                            float* skipped, float* inverse, float* skip) {
  bool bad = false;
  for (int f = 0; f < flags.count; ++f) bad = bad || !(*flags.at[f] == 0.0F);
  const LossScaleStep step = step_loss_scale(*scale, *good, bad, growth);
  *inverse = step.inverse;
  *skip = bad ? 1.0F : 0.0F;
  *scale = step.scale;
  *good = step.good;
  if (bad) *skipped += 1;
}

PreparedKernel prepare_step(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [count = static_cast<int>(c.inputs.size()) - LossScaleInputs::kFlags,
                growth = static_cast<float>(c.attr<std::int64_t>("growth", 2000))](const KernelArgs& a) {
    Flags flags;
    flags.count = count;
    for (int f = 0; f < count; ++f) flags.at[f] = a.in<float>(LossScaleInputs::kFlags + f);
    cuda::launch(step_kernel, 1, 1, 0, a.stream, flags, growth, a.var<float>(0), a.var<float>(1),
                 a.var<float>(2), a.out<float>(0), a.out<float>(1));
  };
  return kernel;
}

}  // namespace

void register_loss_scale_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.NotFinite", prepare_not_finite);
  registry.add_cuda("braid.LossScaleStep", prepare_step, [](const Node&, std::span<const OutputInfo> inputs) {
    return inputs.size() <= LossScaleInputs::kFlags + kMostFlags;
  });
}

}  // namespace braid
