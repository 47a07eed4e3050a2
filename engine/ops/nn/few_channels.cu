#include "engine/ops/nn/few_channels.h"

#include <algorithm>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"

namespace braid::cuda {
namespace {

using Four = Pack<float, 4>;

constexpr int kFewBlocks = 132 * 3;  // whose sums of a filter's gradient are added

/// Sizes of a convolution; what the template has is left out.
struct Sizes {
  std::uint32_t pixels, in_h, in_w, out_h, out_w;
  int packs, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;

  explicit Sizes(const Convolution& c)
      : pixels(static_cast<std::uint32_t>(c.batch * c.out_h * c.out_w)),
        in_h(static_cast<std::uint32_t>(c.in_h)),
        in_w(static_cast<std::uint32_t>(c.in_w)),
        out_h(static_cast<std::uint32_t>(c.out_h)),
        out_w(static_cast<std::uint32_t>(c.out_w)),
        packs(static_cast<int>(c.out_c / 4)),
        stride_h(static_cast<int>(c.window.h.stride)),
        stride_w(static_cast<int>(c.window.w.stride)),
        pad_h(static_cast<int>(c.window.h.pad_before)),
        pad_w(static_cast<int>(c.window.w.pad_before)),
        dilation_h(static_cast<int>(c.window.h.dilation)),
        dilation_w(static_cast<int>(c.window.w.dilation)) {}
};

/// The images' elements under the window of a pixel of the output, zeros outside.
template <int kSide, int kChannels, class T>
__device__ void load_window(const Sizes& s, const T* images, std::uint32_t pixel,
                            float (&taps)[kSide * kSide * kChannels]) {
  const std::uint32_t line = pixel / s.out_w, image = line / s.out_h;
  const int top = static_cast<int>(line - image * s.out_h) * s.stride_h - s.pad_h;
  const int left = static_cast<int>(pixel - line * s.out_w) * s.stride_w - s.pad_w;
#pragma unroll
  for (int r = 0; r < kSide; ++r)
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      const int y = top + r * s.dilation_h, x = left + c * s.dilation_w;
      const bool inside = static_cast<std::uint32_t>(y) < s.in_h && static_cast<std::uint32_t>(x) < s.in_w;
      const std::uint32_t at =
          ((image * s.in_h + static_cast<std::uint32_t>(y)) * s.in_w + static_cast<std::uint32_t>(x)) *
          kChannels;
#pragma unroll
      for (int i = 0; i < kChannels; ++i)
        taps[(r * kSide + c) * kChannels + i] =
            inside ? static_cast<float>(images[at + static_cast<std::uint32_t>(i)]) : 0.0F;
    }
}

template <class T, int kSide, int kChannels>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ Sizes s, const T* images, const T* filter, Pack<T, 4>* outputs) {
  constexpr int kTaps = kSide * kSide * kChannels;
  extern __shared__ Four weights[];  // [taps, packs]
  for (int i = static_cast<int>(threadIdx.x); i < kTaps * s.packs * 4; i += kThreads) {
    const int tap = i / (s.packs * 4), out = i - tap * s.packs * 4;
    weights[tap * s.packs + out / 4].at[out % 4] = static_cast<float>(filter[out * kTaps + tap]);
  }
  __syncthreads();
  const int lanes = kThreads / s.packs, lane = static_cast<int>(threadIdx.x) / s.packs;
  const int pack = static_cast<int>(threadIdx.x) - lane * s.packs;
  const std::uint32_t step = gridDim.x * static_cast<std::uint32_t>(lanes);
  for (std::uint32_t pixel =
           blockIdx.x * static_cast<std::uint32_t>(lanes) + static_cast<std::uint32_t>(lane);
       pixel < s.pixels; pixel += step) {
    float taps[kTaps];
    load_window<kSide, kChannels>(s, images, pixel, taps);
    Four sum{};
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const Four weight = weights[t * s.packs + pack];
#pragma unroll
      for (int e = 0; e < 4; ++e) sum.at[e] += taps[t] * weight.at[e];
    }
    Pack<T, 4> rounded;
#pragma unroll
    for (int e = 0; e < 4; ++e) rounded.at[e] = static_cast<T>(sum.at[e]);
    outputs[static_cast<std::int64_t>(pixel) * s.packs + pack] = rounded;
  }
}

/// Blocks' sums over pixels: [blocks, taps, outputs]. A block's threads that have the same outputs are added
/// in a fixed order.
template <class T, int kSide, int kChannels>
__global__ void __launch_bounds__(kThreads) filter_kernel(const __grid_constant__ Sizes s, const T* images,
                                                          const Pack<T, 4>* gradients, Four* parts) {
  constexpr int kTaps = kSide * kSide * kChannels;
  __shared__ Four shared[kThreads];
  const int lanes = kThreads / s.packs, lane = static_cast<int>(threadIdx.x) / s.packs;
  const int pack = static_cast<int>(threadIdx.x) - lane * s.packs;
  Four sums[kTaps] = {};
  const std::uint32_t step = gridDim.x * static_cast<std::uint32_t>(lanes);
  for (std::uint32_t pixel =
           blockIdx.x * static_cast<std::uint32_t>(lanes) + static_cast<std::uint32_t>(lane);
       pixel < s.pixels; pixel += step) {
    float taps[kTaps];
    load_window<kSide, kChannels>(s, images, pixel, taps);
    const Pack<T, 4> gradient = gradients[static_cast<std::int64_t>(pixel) * s.packs + pack];
#pragma unroll
    for (int t = 0; t < kTaps; ++t)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[t].at[e] += taps[t] * static_cast<float>(gradient.at[e]);
  }
  // Threads of a warp with the same outputs lie `packs`, a power of two, apart.
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    for (int distance = 16; distance >= s.packs; distance /= 2)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[t].at[e] += __shfl_xor_sync(0xffffffffU, sums[t].at[e], distance);
    shared[threadIdx.x] = sums[t];
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < s.packs) {
      const int apart = max(s.packs, 32);  // of threads that hold other sums
      Four total = shared[threadIdx.x];
      for (int other = static_cast<int>(threadIdx.x) + apart; other < kThreads; other += apart)
#pragma unroll
        for (int e = 0; e < 4; ++e) total.at[e] += shared[other].at[e];
      parts[(static_cast<std::int64_t>(blockIdx.x) * kTaps + t) * s.packs + pack] = total;
    }
    __syncthreads();
  }
}

/// A warp an element of the gradient, in the library's order [outputs, taps].
template <class T>
__global__ void add_kernel(const float* parts, T* filter, int blocks, int taps, int outputs) {
  const int at = static_cast<int>(grid_index() / 32), lane = static_cast<int>(threadIdx.x) % 32;
  if (at >= taps * outputs) return;
  float sum = 0;
#pragma unroll 4
  for (int b = lane; b < blocks; b += 32) sum += parts[static_cast<std::int64_t>(b) * taps * outputs + at];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  if (lane == 0) filter[at % outputs * taps + at / outputs] = static_cast<T>(sum);
}

template <class T, int kSide, int kChannels>
PreparedConvolution prepare(const Convolution& conv, ConvolutionPass pass) {
  constexpr int kTaps = kSide * kSide * kChannels;
  const Sizes s(conv);
  const int lanes = kThreads / s.packs;
  const auto whole = static_cast<unsigned>((s.pixels + static_cast<std::uint32_t>(lanes) - 1) /
                                           static_cast<std::uint32_t>(lanes));
  PreparedConvolution prepared;
  if (pass == ConvolutionPass::Forward) {
    const unsigned blocks = std::min(whole, 132U * 8);
    const std::size_t shared = sizeof(Four) * static_cast<std::size_t>(kTaps * s.packs);
    prepared.run = [s, blocks, shared](const ConvolutionArgs& a) {
      launch(forward_kernel<T, kSide, kChannels>, blocks, kThreads, shared, a.stream, s,
             static_cast<const T*>(a.images), static_cast<const T*>(a.filter),
             static_cast<Pack<T, 4>*>(a.outputs));
    };
    return prepared;
  }
  const unsigned blocks = std::min(whole, static_cast<unsigned>(kFewBlocks));
  prepared.workspace_bytes = sizeof(Four) * blocks * static_cast<std::size_t>(kTaps * s.packs);
  prepared.run = [s, blocks](const ConvolutionArgs& a) {
    auto* parts = static_cast<Four*>(a.workspace);
    launch(filter_kernel<T, kSide, kChannels>, blocks, kThreads, 0, a.stream, s,
           static_cast<const T*>(a.images), static_cast<const Pack<T, 4>*>(a.outputs), parts);
    launch(add_kernel<T>, blocks_for(std::int64_t{kTaps} * s.packs * 4 * 32), kThreads, 0, a.stream,
           reinterpret_cast<const float*>(parts), static_cast<T*>(a.filter), static_cast<int>(blocks), kTaps,
           s.packs * 4);
  };
  return prepared;
}

template <class T>
PreparedConvolution prepare_as(const Convolution& conv, ConvolutionPass pass) {
  if (conv.window.h.kernel == 5) return prepare<T, 5, 1>(conv, pass);
  switch (conv.in_c) {
    case 1:
      return prepare<T, 3, 1>(conv, pass);
    case 2:
      return prepare<T, 3, 2>(conv, pass);
    case 3:
      return prepare<T, 3, 3>(conv, pass);
    default:
      return prepare<T, 3, 4>(conv, pass);
  }
}

}  // namespace

std::optional<PreparedConvolution> prepare_few_channels(const Convolution& conv, ConvolutionPass pass,
                                                        DType dtype) {
  constexpr std::int64_t kMostElements32 = (1LL << 31) - (1 << 24);  // leaves room for a step of the grid
  const bool fits = conv.batch * conv.in_h * conv.in_w * conv.in_c < kMostElements32 &&
                    conv.batch * conv.out_h * conv.out_w < kMostElements32;
  if (pass == ConvolutionPass::BackwardInput || !has_few_channels(conv) || !fits) return std::nullopt;
  switch (dtype) {
    case DType::Float16:
      return prepare_as<Float16>(conv, pass);
    case DType::BFloat16:
      return prepare_as<BFloat16>(conv, pass);
    default:
      return prepare_as<float>(conv, pass);
  }
}

}  // namespace braid::cuda
