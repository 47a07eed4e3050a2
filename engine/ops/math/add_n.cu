// CUDA kernel of AddN: up to 16 inputs a launch, added from first to last.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

using cuda::Pack;

constexpr int kMost = 16;

template <class T>
struct Terms {
  const T* at[kMost];
};

/// y[i] = the sum of the first `count` terms at i, for n packs. y may be the first term.
template <class T, int kCount>
__global__ void sum_kernel(Terms<T> terms, int count, T* y, std::int64_t n) {
  using P = Pack<T, kCount>;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    P sum = reinterpret_cast<const P*>(terms.at[0])[i];
    // Unrolled, so that the loads are under way together.
#pragma unroll
    for (int k = 1; k < kMost; ++k) {
      if (k < count) {
        const P term = reinterpret_cast<const P*>(terms.at[k])[i];
#pragma unroll
        for (int e = 0; e < kCount; ++e) sum.at[e] += term.at[e];
      }
    }
    reinterpret_cast<P*>(y)[i] = sum;
  }
}

template <class T>
void launch_sum(StreamRef stream, const Terms<T>& terms, int count, T* y, std::int64_t n) {
  constexpr int kCount = cuda::kPackOf<T>;
  bool packed = n % kCount == 0 && cuda::is_aligned16(y);
  for (int k = 0; k < count; ++k) packed = packed && cuda::is_aligned16(terms.at[k]);
  if (packed)
    cuda::launch(sum_kernel<T, kCount>, cuda::blocks_for(n / kCount), cuda::kThreads, 0, stream, terms, count,
                 y, n / kCount);
  else
    cuda::launch(sum_kernel<T, 1>, cuda::blocks_for(n), cuda::kThreads, 0, stream, terms, count, y, n);
}

PreparedKernel prepare(const PrepareContext& c) {
  const int inputs = static_cast<int>(c.inputs.size());
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_number("AddN", c.inputs[0].dtype, [&]<class T>() {
    using W = wrapping_t<T>;
    PreparedKernel kernel;
    kernel.run = [inputs, n](const KernelArgs& a) {
      if (n == 0) return;
      W* y = a.out<W>(0);
      for (int next = 0; next < inputs;) {
        Terms<W> terms{};
        int count = 0;
        if (next > 0) terms.at[count++] = y;
        while (count < kMost && next < inputs) terms.at[count++] = a.in<W>(next++);
        launch_sum<W>(a.stream, terms, count, y, n);
      }
    };
    return kernel;
  });
}

}  // namespace

void register_add_n_cuda(OpRegistry& registry) { registry.add_cuda("AddN", prepare); }

}  // namespace braid
