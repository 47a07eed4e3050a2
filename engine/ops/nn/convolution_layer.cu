#include "engine/ops/nn/convolution_layer.h"

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"

namespace braid::cuda {
namespace {

/// y = relu(y + bias + residual) in place, in packs; bias and residual may be absent. `run` packs have one
/// channel (kRuns), else the last axis is `channels` packs.
template <class T, int kCount, bool kRuns>
__global__ void layer_kernel(T* y, const float* bias, const T* residual, bool relu, std::int64_t n,
                             std::uint32_t channels, std::uint32_t run) {
  using P = Pack<T, kCount>;
  constexpr int kBiases = kCount < 4 ? kCount : 4;  // that are read together
  using B = Pack<float, kBiases>;
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    const P p = reinterpret_cast<const P*>(y)[i];
    float sum[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[e] = static_cast<float>(p.at[e]);
    if (bias) {
      const std::int64_t at = kRuns ? i / run % channels : i % channels;
#pragma unroll
      for (int e = 0; e < kCount; e += kBiases) {
        B b;
        if constexpr (kRuns) {
#pragma unroll
          for (int k = 0; k < kBiases; ++k) b.at[k] = bias[at];
        } else {
          b = reinterpret_cast<const B*>(bias)[(at * kCount + e) / kBiases];
        }
#pragma unroll
        for (int k = 0; k < kBiases; ++k) sum[e + k] += b.at[k];
      }
    }
    if (residual) {
      const P r = reinterpret_cast<const P*>(residual)[i];
#pragma unroll
      for (int e = 0; e < kCount; ++e) sum[e] += static_cast<float>(r.at[e]);
    }
    P result;
#pragma unroll
    for (int e = 0; e < kCount; ++e) result.at[e] = static_cast<T>(relu && sum[e] < 0 ? 0.0F : sum[e]);
    reinterpret_cast<P*>(y)[i] = result;
  }
}

template <class T>
void finish(const Convolution& conv, bool relu, const ConvolutionArgs& a, std::int64_t images) {
  constexpr int kMost = kPackOf<T>;
  const std::int64_t run = conv.window.axes.nchw() ? conv.out_h * conv.out_w : 1;
  const std::int64_t n = images * conv.out_h * conv.out_w * conv.out_c;
  const bool packed = (run == 1 ? conv.out_c : run) % kMost == 0 && is_aligned16(a.outputs) &&
                      is_aligned16(a.bias) && is_aligned16(a.residual);
  const auto launch_with = [&](auto kernel, std::int64_t pack) {
    const std::int64_t channels = run == 1 ? conv.out_c / pack : conv.out_c;
    launch(kernel, blocks_for(n / pack), kThreads, 0, a.stream, static_cast<T*>(a.outputs), a.bias,
           static_cast<const T*>(a.residual), relu, n / pack, static_cast<std::uint32_t>(channels),
           static_cast<std::uint32_t>(run == 1 ? 1 : run / pack));
  };
  if (run == 1)
    packed ? launch_with(layer_kernel<T, kMost, false>, kMost) : launch_with(layer_kernel<T, 1, false>, 1);
  else
    packed ? launch_with(layer_kernel<T, kMost, true>, kMost) : launch_with(layer_kernel<T, 1, true>, 1);
}

}  // namespace

void finish_layer(const Convolution& conv, DType dtype, bool relu, const ConvolutionArgs& a,
                  std::int64_t images) {
  switch (dtype) {
    case DType::Float16:
      return finish<Float16>(conv, relu, a, images);
    case DType::BFloat16:
      return finish<BFloat16>(conv, relu, a, images);
    default:
      return finish<float>(conv, relu, a, images);
  }
}

}  // namespace braid::cuda
