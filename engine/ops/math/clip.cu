// CUDA kernel of ClipByValue: the formula of common/scalar_formulas.h.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scalar_formulas.h"

namespace braid {
namespace {

using cuda::Pack;

/// Bounds are read at i * ls and i * hs: strides 0 or 1. Packs of kCount need scalar bounds. y may be x.
template <class T, int kCount>
__global__ void clip_kernel(const T* x, const T* low, std::int64_t ls, const T* high, std::int64_t hs, T* y,
                            std::int64_t n) {
  using P = Pack<T, kCount>;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    P p = reinterpret_cast<const P*>(x)[i];
    const T l = low[i * ls], h = high[i * hs];
#pragma unroll
    for (int e = 0; e < kCount; ++e) p.at[e] = formula::clipped(p.at[e], l, h);
    reinterpret_cast<P*>(y)[i] = p;
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t ls = c.inputs[1].shape.rank() == 0 ? 0 : 1, hs = c.inputs[2].shape.rank() == 0 ? 0 : 1;
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_number("ClipByValue", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (n == 0) return;
      constexpr int kCount = cuda::kPackOf<T>;
      const bool packed = ls == 0 && hs == 0 && n % kCount == 0 && cuda::is_aligned16(a.inputs[0]) &&
                          cuda::is_aligned16(a.outputs[0]);
      const std::int64_t items = packed ? n / kCount : n;
      cuda::launch(packed ? clip_kernel<T, kCount> : clip_kernel<T, 1>, cuda::blocks_for(items),
                   cuda::kThreads, 0, a.stream, a.in<T>(0), a.in<T>(1), ls, a.in<T>(2), hs, a.out<T>(0),
                   items);
    };
    return kernel;
  });
}

}  // namespace

void register_clip_cuda(OpRegistry& registry) { registry.add_cuda("ClipByValue", prepare); }

}  // namespace braid
