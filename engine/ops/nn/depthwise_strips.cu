#include "engine/ops/nn/depthwise_strips.h"

#include <algorithm>
#include <utility>

#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/nn/depthwise_strips.cuh"

namespace braid::cuda {
namespace {

using namespace strips;

constexpr int kWarps = static_cast<int>(kThreads) / 32;
constexpr std::int64_t kAimedBlocks = 1024;  // of a filter's gradient
constexpr int kAdders = 16;                  // threads that add up the parts of one element

template <class T, int K, int KX, int S>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const T* images, const T* filter, T* y, const __grid_constant__ Strips s,
                   std::int64_t count) {
  for (std::int64_t i = grid_index(); i < count; i += grid_size()) {
    const Place at = s.locate(static_cast<std::uint32_t>(i));
    const int y0 = at.strip * kRows;
    const T* const image = images + at.image * s.in.of_image + at.channel * s.in.of_channel;
    NumbersOf<T> sums[kRows];
#pragma unroll
    for (int kx = 0; kx < KX; ++kx) {
      const int ix = at.x * S - s.pad_w + kx;
      if (!is_inside(ix, s.in.w)) continue;
      const Taps<T, K, KX> taps(filter, kx, at.channel, s);
      const T* const column = image + ix * s.in.of_column;
#pragma unroll
      for (int j = 0; j < (kRows - 1) * S + K; ++j) {
        const bool is_under = KX > 1 || j < (kRows - 1) * S + s.rows;
        const NumbersOf<T> v = row_of(column, y0 * S - s.pad_h + j, s.in, is_under);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (j - r * S >= 0 && j - r * S < K) sums[r].add_product(v, taps.of_row[j - r * S]);
      }
    }
    store(y, s.out, at, y0, sums);
  }
}

/// Strips begin where a row and the padding before it are a multiple of the stride, so the taps that are over
/// a row of the output are known.
template <class T, int K, int KX, int S>
__global__ void __launch_bounds__(kThreads)
    backward_input_kernel(const T* dy, const T* filter, T* dx, const __grid_constant__ Strips s,
                          std::int64_t count) {
  constexpr int kBefore = (K - 1) / S;
  for (std::int64_t i = grid_index(); i < count; i += grid_size()) {
    const Place at = s.locate(static_cast<std::uint32_t>(i));
    const int y0 = at.strip * kRows - s.shift, q = (y0 + s.pad_h) / S;
    const T* const image = dy + at.image * s.out.of_image + at.channel * s.out.of_channel;
    NumbersOf<T> sums[kRows];
#pragma unroll
    for (int kx = 0; kx < KX; ++kx) {
      const int t = at.x + s.pad_w - kx;
      if (t < 0 || t % S != 0 || t / S >= s.out.w) continue;
      const Taps<T, K, KX> taps(filter, kx, at.channel, s);
      const T* const column = image + t / S * s.out.of_column;
#pragma unroll
      for (int j = -kBefore; j <= (kRows - 1) / S; ++j) {
        const NumbersOf<T> v = row_of(column, q + j, s.out, KX > 1 || -S * j < s.rows);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (r - S * j >= 0 && r - S * j < K) sums[r].add_product(v, taps.of_row[r - S * j]);
      }
    }
    store(dx, s.in, at, y0, sums);
  }
}

// ------------------------------------------------------------------------------------- the filter's gradient

/// The parts of a filter's gradient. NCHW: the threads of a block share a channel; NHWC: a warp has 32
/// channels next to each other, of halves 64, and the warps of a block share them.
struct Parts {
  int splits, groups;     // of the strips, of the channels: blocks
  std::int64_t strips;    // of a channel
  std::int64_t in_split;  // of a channel and a split

  explicit Parts(const Convolution& conv, const Strips& s)
      : groups(s.nchw ? s.channels : (s.channels + 32 * s.together - 1) / (32 * s.together)),
        strips(conv.batch * conv.out_w * Strips::strips_of(s.out, 0)) {
    const std::int64_t workers = s.nchw ? kThreads : kWarps;
    const std::int64_t most = (strips + workers - 1) / workers;
    splits = static_cast<int>(std::clamp<std::int64_t>(kAimedBlocks / groups, 1, most));
    in_split = (strips + splits - 1) / splits;
  }
};

template <class T, int K, int KX, int S>
__device__ void add_strip(const T* images, const T* dy, const Strips& s, const Place& at,
                          NumbersOf<T> (&sums)[K * KX]) {
  const int y0 = at.strip * kRows;
  const T* const image = images + at.image * s.in.of_image + at.channel * s.in.of_channel;
  const T* const of_dy = dy + at.image * s.out.of_image + at.channel * s.out.of_channel;
  NumbersOf<T> gradients[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) gradients[r] = row_of(of_dy + at.x * s.out.of_column, y0 + r, s.out);
#pragma unroll
  for (int kx = 0; kx < KX; ++kx) {
    const int ix = at.x * S - s.pad_w + kx;
    if (!is_inside(ix, s.in.w)) continue;
    const T* const column = image + ix * s.in.of_column;
#pragma unroll
    for (int j = 0; j < (kRows - 1) * S + K; ++j) {
      const bool is_under = KX > 1 || j < (kRows - 1) * S + s.rows;
      const NumbersOf<T> v = row_of(column, y0 * S - s.pad_h + j, s.in, is_under);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (j - r * S >= 0 && j - r * S < K) sums[(j - r * S) * KX + kx].add_product(v, gradients[r]);
    }
  }
}

/// parts: [splits, rows, KX, channels].
template <class T, int K, int KX, int S>
__global__ void __launch_bounds__(kThreads)
    filter_parts_kernel(const T* images, const T* dy, float* parts, const __grid_constant__ Strips s,
                        const __grid_constant__ Parts p) {
  constexpr int C = kChannelsOf<T>, kChannels = 32 * C;  // of a thread, of a warp
  __shared__ float shared[kWarps][KX][kChannels];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto split = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y);
  const int channel = s.nchw ? group : group * kChannels + lane * C;
  const std::int64_t begin = split * p.in_split, end = min(begin + p.in_split, p.strips);
  const int first = s.nchw ? static_cast<int>(threadIdx.x) : warp, step = s.nchw ? kThreads : kWarps;
  const auto width = static_cast<std::uint32_t>(s.out.w);
  NumbersOf<T> sums[K * KX];
  if (channel < s.channels) {
    for (std::int64_t i = begin + first; i < end; i += step) {
      // Columns, then strips, then images, whatever the layout.
      const Divider &by_w = s.nchw ? s.by_inner : s.by_middle, &by_strip = s.nchw ? s.by_middle : s.by_outer;
      const auto at = static_cast<std::uint32_t>(i);
      const std::uint32_t row = by_w.quotient(at), image = by_strip.quotient(row);
      add_strip<T, K, KX, S>(images, dy, s,
                             {static_cast<int>(image), channel, static_cast<int>(at - row * width),
                              static_cast<int>(row - image * by_strip.divisor())},
                             sums);
    }
  }
  float* const out = parts + static_cast<std::int64_t>(split) * s.rows * KX * s.channels;
#pragma unroll
  for (int ky = 0; ky < K; ++ky) {
    if (KX == 1 && ky >= s.rows) break;
#pragma unroll
    for (int kx = 0; kx < KX; ++kx) {
      NumbersOf<T> sum = sums[ky * KX + kx];
      if (s.nchw)
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2)
          sum.at[0] += __shfl_xor_sync(0xffffffffU, sum.at[0], offset);
#pragma unroll
      for (int c = 0; c < C; ++c)
        if (!s.nchw || lane == 0) shared[warp][kx][lane * C + c] = sum.at[c];
    }
    __syncthreads();
    const int results = s.nchw ? KX : KX * kChannels;
    for (int i = static_cast<int>(threadIdx.x); i < results; i += kThreads) {
      const int kx = s.nchw ? i : i / kChannels, of_lane = s.nchw ? 0 : i % kChannels;
      const int to = s.nchw ? group : group * kChannels + of_lane;
      if (to >= s.channels) continue;
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += shared[w][kx][of_lane];
      out[(ky * KX + kx) * s.channels + to] = sum;
    }
    __syncthreads();
  }
}

/// A warp has 32 elements, and the warps of a block share their parts, as few elements have many.
template <class T>
__global__ void __launch_bounds__(32 * kAdders)
    add_parts_kernel(const float* parts, T* gradient, int splits, std::int64_t elements) {
  __shared__ float sums[kAdders][32];
  const int lane = threadIdx.x % 32, adder = threadIdx.x / 32;
  const std::int64_t element = std::int64_t{blockIdx.x} * 32 + lane;
  float sum = 0;
  if (element < elements)
    for (int split = adder; split < splits; split += kAdders) sum += parts[split * elements + element];
  sums[adder][lane] = sum;
  __syncthreads();
  if (adder != 0 || element >= elements) return;
#pragma unroll
  for (int a = 1; a < kAdders; ++a) sum += sums[a][lane];
  gradient[element] = static_cast<T>(sum);
}

// ------------------------------------------------------------------------------------------------------
// choice

template <class T>
using ImageKernel = void (*)(const T*, const T*, T*, Strips, std::int64_t);
template <class T>
using FilterKernel = void (*)(const T*, const T*, float*, Strips, Parts);

template <class T>
struct Kernels {
  ImageKernel<T> forward, backward_input;
  FilterKernel<T> filter_parts;
};

template <class T, int K, int KX>
Kernels<T> of_stride(std::int64_t stride) {
  if (stride == 1)
    return {forward_kernel<T, K, KX, 1>, backward_input_kernel<T, K, KX, 1>,
            filter_parts_kernel<T, K, KX, 1>};
  return {forward_kernel<T, K, KX, 2>, backward_input_kernel<T, K, KX, 2>, filter_parts_kernel<T, K, KX, 2>};
}

template <class T>
Kernels<T> kernels_of(const Convolution& conv) {
  const std::int64_t stride = conv.window.h.stride, rows = conv.window.h.kernel;
  if (conv.window.w.kernel == 1)
    return rows <= 16 ? of_stride<T, 16, 1>(stride) : of_stride<T, 32, 1>(stride);
  if (rows == 3) return of_stride<T, 3, 3>(stride);
  return rows == 5 ? of_stride<T, 5, 5>(stride) : of_stride<T, 7, 7>(stride);
}

template <class T>
PreparedKernel image_kernel(ImageKernel<T> function, const Convolution& conv, const Strips& strips,
                            const Layout& result, int from) {
  const std::int64_t count =
      conv.batch * (conv.in_c / kChannelsOf<T>)*result.w * Strips::strips_of(result, strips.shift);
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& a) {
    launch(function, blocks_for(count), kThreads, 0, a.stream, a.in<T>(from), a.in<T>(1), a.out<T>(0), strips,
           count);
  };
  return kernel;
}

/// Calls `with` with an element of the type.
template <class With>
PreparedKernel of_type(DType dtype, const With& with) {
  switch (dtype) {
    case DType::Float16:
      return with(Float16{});
    case DType::BFloat16:
      return with(BFloat16{});
    default:
      return with(float{});
  }
}

template <class T>
PreparedKernel backward_filter(const Convolution& conv) {
  const Strips strips(conv, Layout(conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw()), 0,
                      kChannelsOf<T>);
  const Parts parts(conv, strips);
  const std::int64_t elements = conv.window.h.kernel * conv.window.w.kernel * conv.out_c;
  const FilterKernel<T> function = kernels_of<T>(conv).filter_parts;
  PreparedKernel kernel;
  kernel.scratch_bytes = sizeof(float) * static_cast<std::size_t>(parts.splits * elements);
  kernel.run = [=](const KernelArgs& a) {
    const dim3 blocks(static_cast<unsigned>(parts.splits), static_cast<unsigned>(parts.groups));
    launch(function, blocks, kThreads, 0, a.stream, a.in<T>(0), a.in<T>(2), static_cast<float*>(a.scratch),
           strips, parts);
    launch(add_parts_kernel<T>, static_cast<unsigned>((elements + 31) / 32), 32 * kAdders, 0, a.stream,
           static_cast<const float*>(a.scratch), a.out<T>(0), parts.splits, elements);
  };
  return kernel;
}

/// A sequence, an image of one row, as an image of one column, which lies alike: strips go along it.
Convolution upright(Convolution conv) {
  if (conv.window.h.kernel != 1) return conv;
  std::swap(conv.window.h, conv.window.w);
  std::swap(conv.in_h, conv.in_w);
  std::swap(conv.out_h, conv.out_w);
  return conv;
}

}  // namespace

PreparedKernel depthwise_forward(const Convolution& of, DType dtype) {
  const Convolution conv = upright(of);
  const Layout result(conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw());
  return of_type(dtype, [&]<class T>(T) {
    return image_kernel<T>(kernels_of<T>(conv).forward, conv, Strips(conv, result, 0, kChannelsOf<T>), result,
                           0);
  });
}

PreparedKernel depthwise_backward_input(const Convolution& of, DType dtype) {
  const Convolution conv = upright(of);
  const Layout result(conv.in_h, conv.in_w, conv.in_c, conv.window.axes.nchw());
  const auto shift = static_cast<int>(conv.window.h.pad_before % conv.window.h.stride);
  return of_type(dtype, [&]<class T>(T) {
    return image_kernel<T>(kernels_of<T>(conv).backward_input, conv,
                           Strips(conv, result, shift, kChannelsOf<T>), result, 2);
  });
}

PreparedKernel depthwise_backward_filter(const Convolution& conv, DType dtype) {
  return of_type(dtype, [&]<class T>(T) { return backward_filter<T>(upright(conv)); });
}

}  // namespace braid::cuda
