// CUDA kernel of braid.CastMany: one launch casts up to kMost tensors, whose addresses and sizes are the
// kernel's argument. A block works on kTile elements of one of them.
#include <algorithm>

#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"

namespace braid {
namespace {

constexpr int kPack = 4;  // elements, 16 bytes of float32
constexpr int kTile = 2 * kPack * cuda::kThreads;
constexpr int kMost = 100;  // a kernel's arguments are 4 KiB

template <class From, class To>
struct Tensors {
  struct One {
    const From* x;
    To* y;
    std::int64_t elements;
    std::int32_t first_block;
    bool packed;  // both are aligned to packs
  };
  int count = 0;
  One at[kMost];
};

template <class From, class To>
__global__ void __launch_bounds__(cuda::kThreads)
    cast_kernel(const __grid_constant__ Tensors<From, To> tensors) {
  static_assert(sizeof(Tensors<From, To>) <= 4096);
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const auto& tensor = cuda::part_of_block(tensors, block);
  const std::int64_t begin = static_cast<std::int64_t>(block - tensor.first_block) * kTile;
  const std::int64_t end = begin + kTile < tensor.elements ? begin + kTile : tensor.elements;
  std::int64_t rest = begin;
  if (tensor.packed) {
    rest = end / kPack * kPack;  // `begin` is on a boundary
#pragma unroll 2
    for (std::int64_t i = begin + threadIdx.x * kPack; i < rest; i += cuda::kThreads * kPack) {
      const auto from = *reinterpret_cast<const cuda::Pack<From, kPack>*>(tensor.x + i);
      cuda::Pack<To, kPack> to;
#pragma unroll
      for (int e = 0; e < kPack; ++e) to.at[e] = static_cast<To>(from.at[e]);
      *reinterpret_cast<cuda::Pack<To, kPack>*>(tensor.y + i) = to;
    }
  }
  for (std::int64_t i = rest + threadIdx.x; i < end; i += cuda::kThreads)
    tensor.y[i] = static_cast<To>(tensor.x[i]);
}

template <class From, class To>
PreparedKernel prepare_of(const PrepareContext& c) {
  std::vector<std::int64_t> elements;
  for (const OutputInfo& output : c.outputs) elements.push_back(output.shape.elements());
  PreparedKernel kernel;
  kernel.run = [elements = std::move(elements)](const KernelArgs& a) {
    Tensors<From, To> tensors;
    std::int32_t blocks = 0;
    const auto flush = [&] {
      if (blocks != 0)
        cuda::launch(cast_kernel<From, To>, static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream,
                     tensors);
      tensors.count = 0;
      blocks = 0;
    };
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (elements[i] == 0) continue;
      const auto* const x = static_cast<const From*>(a.inputs[i]);
      auto* const y = static_cast<To*>(a.outputs[i]);
      tensors.at[tensors.count++] = {x, y, elements[i], blocks,
                                     cuda::is_aligned16(x) && cuda::is_aligned16(y)};
      blocks += static_cast<std::int32_t>((elements[i] + kTile - 1) / kTile);
      if (tensors.count == kMost) flush();
    }
    flush();
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  if (c.outputs[0].dtype == DType::Float32)
    return c.inputs[0].dtype == DType::Float16 ? prepare_of<Float16, float>(c)
                                               : prepare_of<BFloat16, float>(c);
  return c.outputs[0].dtype == DType::Float16 ? prepare_of<float, Float16>(c)
                                              : prepare_of<float, BFloat16>(c);
}

}  // namespace

void register_cast_many_cuda(OpRegistry& registry) { registry.add_cuda("braid.CastMany", prepare); }

}  // namespace braid
