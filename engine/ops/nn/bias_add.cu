// CUDA kernels of BiasAdd (packs of 16 bytes where channels, or runs of one channel, allow it) and of
// BiasAddGrad (common/cuda/axis_reduce.h).
#include "engine/ops/common/cuda/axis_reduce.h"
#include "engine/ops/common/cuda/half_sums.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/nn/channel_axis.h"

namespace braid {
namespace {

using cuda::Pack;

/// y = x + bias over n packs; kRuns: a channel is `run` packs, else the last axis is `channels` packs.
template <class T, int kCount, bool kRuns, class Index>
__device__ void add_bias(const T* x, const T* bias, T* y, Index n, Index channels, Index run) {
  using P = Pack<T, kCount>;
  for (Index i = static_cast<Index>(cuda::grid_index()); i < n; i += static_cast<Index>(cuda::grid_size())) {
    P p = reinterpret_cast<const P*>(x)[i], b;
    if constexpr (kRuns) {
      const T value = bias[i / run % channels];
#pragma unroll
      for (int e = 0; e < kCount; ++e) b.at[e] = value;
    } else {
      b = reinterpret_cast<const P*>(bias)[i % channels];
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) p.at[e] += b.at[e];
    reinterpret_cast<P*>(y)[i] = p;
  }
}

// Divisions of 32 bits where they do: those of 64 are many instructions. The bound leaves room for a step of
// the grid.
template <class T, int kCount, bool kRuns>
__global__ void bias_kernel(const T* x, const T* bias, T* y, std::int64_t n, std::int64_t channels,
                            std::int64_t run) {
  if (n < (1LL << 31))
    add_bias<T, kCount, kRuns, std::uint32_t>(x, bias, y, static_cast<std::uint32_t>(n),
                                              static_cast<std::uint32_t>(channels),
                                              static_cast<std::uint32_t>(run));
  else
    add_bias<T, kCount, kRuns, std::int64_t>(x, bias, y, n, channels, run);
}

template <class T, bool kRuns>
void launch_bias(StreamRef stream, const T* x, const T* bias, T* y, std::int64_t n, std::int64_t channels,
                 std::int64_t run) {
  constexpr int kCount = cuda::kPackOf<T>;
  const bool packed = (kRuns ? run : channels) % kCount == 0 && cuda::is_aligned16(x) &&
                      cuda::is_aligned16(y) && (kRuns || cuda::is_aligned16(bias));
  if (packed)
    cuda::launch(bias_kernel<T, kCount, kRuns>, cuda::blocks_for(n / kCount), cuda::kThreads, 0, stream, x,
                 bias, y, n / kCount, kRuns ? channels : channels / kCount, kRuns ? run / kCount : run);
  else
    cuda::launch(bias_kernel<T, 1, kRuns>, cuda::blocks_for(n), cuda::kThreads, 0, stream, x, bias, y, n,
                 channels, run);
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& value = c.inputs[0].shape;
  const int axis = channel_axis(c, value.rank());
  const std::int64_t n = value.elements(), channels = value[axis];
  std::int64_t run = 1;
  for (int d = axis + 1; d < value.rank(); ++d) run *= value[d];
  return with_number("BiasAdd", c.inputs[0].dtype, [&]<class T>() {
    using W = wrapping_t<T>;
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (n == 0) return;
      const auto add = run == 1 ? launch_bias<W, false> : launch_bias<W, true>;
      add(a.stream, a.in<W>(0), a.in<W>(1), a.out<W>(0), n, channels, run);
    };
    return kernel;
  });
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const Shape& value = c.inputs[0].shape;
  if (is_half(c.inputs[0].dtype))
    return cuda::prepare_half_sum(c, value, axes_beside_channels(c, value.rank()), prepare_grad);
  return with_number("BiasAddGrad", c.inputs[0].dtype, [&]<class T>() {
    return cuda::prepare_reduce<reduce::Sum, T>(c, value, axes_beside_channels(c, value.rank()));
  });
}

}  // namespace

void register_bias_add_cuda(OpRegistry& registry) {
  cuda_takes_halves({"BiasAddGrad"});
  registry.add_cuda("BiasAdd", prepare);
  registry.add_cuda("BiasAddGrad", prepare_grad, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::reducible(inputs[0]);
  });
}

}  // namespace braid
