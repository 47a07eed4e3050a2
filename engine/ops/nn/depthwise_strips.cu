#include "engine/ops/nn/depthwise_strips.h"

#include <algorithm>
#include <utility>

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/reduce.cuh"

namespace braid::cuda {
namespace {

constexpr int kRows = 4;  // of a strip
constexpr int kWarps = static_cast<int>(kThreads) / 32;
constexpr std::int64_t kAimedBlocks = 1024;  // of a filter's gradient

/// How images lie in memory, in elements.
struct Layout {
  int h, w, of_image, of_row, of_column, of_channel;

  Layout(std::int64_t height, std::int64_t width, std::int64_t channels, bool nchw)
      : h(static_cast<int>(height)),
        w(static_cast<int>(width)),
        of_image(static_cast<int>(height * width * channels)),
        of_row(static_cast<int>(nchw ? width : width * channels)),
        of_column(nchw ? 1 : static_cast<int>(channels)),
        of_channel(nchw ? static_cast<int>(height * width) : 1) {}
};

/// Images that a strip's window is over, or that it is part of.
struct Place {
  int image, channel, x, strip;
};

struct Strips {
  Layout in, out;  // of the convolution
  int channels, pad_h, pad_w;
  bool nchw;
  int shift;  // rows in front of the image with which the first strip begins
  Divider by_inner, by_middle, by_outer;

  /// Strips of `result`.
  Strips(const Convolution& conv, const Layout& result, int shift)
      : in(conv.in_h, conv.in_w, conv.in_c, conv.window.axes.nchw()),
        out(conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw()),
        channels(static_cast<int>(conv.in_c)),
        pad_h(static_cast<int>(conv.window.h.pad_before)),
        pad_w(static_cast<int>(conv.window.w.pad_before)),
        nchw(conv.window.axes.nchw()),
        shift(shift),
        by_inner(nchw ? result.w : conv.in_c),
        by_middle(nchw ? strips_of(result, shift) : result.w),
        by_outer(nchw ? conv.in_c : strips_of(result, shift)) {}

  static int strips_of(const Layout& result, int shift) { return (result.h + shift + kRows - 1) / kRows; }

  /// NHWC: channels are innermost, then columns, strips, images; NCHW: columns, strips, channels, images.
  __device__ Place locate(std::uint32_t at) const {
    const std::uint32_t a = by_inner.quotient(at), b = by_middle.quotient(a), image = by_outer.quotient(b);
    const auto inner = static_cast<int>(at - a * by_inner.divisor());
    const auto middle = static_cast<int>(a - b * by_middle.divisor());
    const auto outer = static_cast<int>(b - image * by_outer.divisor());
    if (nchw) return {static_cast<int>(image), outer, inner, middle};
    return {static_cast<int>(image), inner, middle, outer};
  }
};

__device__ bool is_inside(int at, int size) {
  return static_cast<unsigned>(at) < static_cast<unsigned>(size);
}

/// Of row y of a column of an image; 0 beside it.
__device__ float row_of(const float* column, int y, const Layout& layout) {
  return is_inside(y, layout.h) ? __ldg(column + y * layout.of_row) : 0.0F;
}

template <int K>
struct Taps {
  float of_row[K];

  /// Column kx of a channel's filter, in [K, K, channels].
  __device__ Taps(const float* filter, int kx, int channel, int channels) {
#pragma unroll
    for (int ky = 0; ky < K; ++ky) of_row[ky] = __ldg(filter + (ky * K + kx) * channels + channel);
  }
};

__device__ void store(float* images, const Layout& layout, const Place& at, int y0,
                      const float (&sums)[kRows]) {
  float* const column =
      images + at.image * layout.of_image + at.channel * layout.of_channel + at.x * layout.of_column;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (is_inside(y0 + r, layout.h)) column[(y0 + r) * layout.of_row] = sums[r];
}

template <int K, int S>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const float* images, const float* filter, float* y, const __grid_constant__ Strips s,
                   std::int64_t count) {
  for (std::int64_t i = grid_index(); i < count; i += grid_size()) {
    const Place at = s.locate(static_cast<std::uint32_t>(i));
    const int y0 = at.strip * kRows;
    const float* const image = images + at.image * s.in.of_image + at.channel * s.in.of_channel;
    float sums[kRows] = {};
#pragma unroll
    for (int kx = 0; kx < K; ++kx) {
      const int ix = at.x * S - s.pad_w + kx;
      if (!is_inside(ix, s.in.w)) continue;
      const Taps<K> taps(filter, kx, at.channel, s.channels);
      const float* const column = image + ix * s.in.of_column;
#pragma unroll
      for (int j = 0; j < (kRows - 1) * S + K; ++j) {
        const float v = row_of(column, y0 * S - s.pad_h + j, s.in);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (j - r * S >= 0 && j - r * S < K) sums[r] += v * taps.of_row[j - r * S];
      }
    }
    store(y, s.out, at, y0, sums);
  }
}

/// Strips begin where a row and the padding before it are a multiple of the stride, so the taps that are over
/// a row of the output are known.
template <int K, int S>
__global__ void __launch_bounds__(kThreads)
    backward_input_kernel(const float* dy, const float* filter, float* dx, const __grid_constant__ Strips s,
                          std::int64_t count) {
  constexpr int kBefore = (K - 1) / S;
  for (std::int64_t i = grid_index(); i < count; i += grid_size()) {
    const Place at = s.locate(static_cast<std::uint32_t>(i));
    const int y0 = at.strip * kRows - s.shift, q = (y0 + s.pad_h) / S;
    const float* const image = dy + at.image * s.out.of_image + at.channel * s.out.of_channel;
    float sums[kRows] = {};
#pragma unroll
    for (int kx = 0; kx < K; ++kx) {
      const int t = at.x + s.pad_w - kx;
      if (t < 0 || t % S != 0 || t / S >= s.out.w) continue;
      const Taps<K> taps(filter, kx, at.channel, s.channels);
      const float* const column = image + t / S * s.out.of_column;
#pragma unroll
      for (int j = -kBefore; j <= (kRows - 1) / S; ++j) {
        const float v = row_of(column, q + j, s.out);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (r - S * j >= 0 && r - S * j < K) sums[r] += v * taps.of_row[r - S * j];
      }
    }
    store(dx, s.in, at, y0, sums);
  }
}

// ------------------------------------------------------------------------------------- the filter's gradient

/// The parts of a filter's gradient. NCHW: the threads of a block share a channel; NHWC: a warp has 32
/// channels next to each other, and the warps of a block share them.
struct Parts {
  int splits, groups;     // of the strips, of the channels: blocks
  std::int64_t strips;    // of a channel
  std::int64_t in_split;  // of a channel and a split

  explicit Parts(const Convolution& conv, const Strips& s)
      : groups(s.nchw ? s.channels : (s.channels + 31) / 32),
        strips(conv.batch * conv.out_w * Strips::strips_of(s.out, 0)) {
    const std::int64_t workers = s.nchw ? kThreads : kWarps;
    const std::int64_t most = (strips + workers - 1) / workers;
    splits = static_cast<int>(std::clamp<std::int64_t>(kAimedBlocks / groups, 1, most));
    in_split = (strips + splits - 1) / splits;
  }
};

template <int K, int S>
__device__ void add_strip(const float* images, const float* dy, const Strips& s, const Place& at,
                          float (&sums)[K * K]) {
  const int y0 = at.strip * kRows;
  const float* const image = images + at.image * s.in.of_image + at.channel * s.in.of_channel;
  const float* const of_dy = dy + at.image * s.out.of_image + at.channel * s.out.of_channel;
  float gradients[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) gradients[r] = row_of(of_dy + at.x * s.out.of_column, y0 + r, s.out);
#pragma unroll
  for (int kx = 0; kx < K; ++kx) {
    const int ix = at.x * S - s.pad_w + kx;
    if (!is_inside(ix, s.in.w)) continue;
    const float* const column = image + ix * s.in.of_column;
#pragma unroll
    for (int j = 0; j < (kRows - 1) * S + K; ++j) {
      const float v = row_of(column, y0 * S - s.pad_h + j, s.in);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (j - r * S >= 0 && j - r * S < K) sums[(j - r * S) * K + kx] += v * gradients[r];
    }
  }
}

/// parts: [splits, K, K, channels].
template <int K, int S>
__global__ void __launch_bounds__(kThreads)
    filter_parts_kernel(const float* images, const float* dy, float* parts, const __grid_constant__ Strips s,
                        const __grid_constant__ Parts p) {
  __shared__ float shared[kWarps][K][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto split = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y);
  const int channel = s.nchw ? group : group * 32 + lane;
  const std::int64_t begin = split * p.in_split, end = min(begin + p.in_split, p.strips);
  const int first = s.nchw ? static_cast<int>(threadIdx.x) : warp, step = s.nchw ? kThreads : kWarps;
  const auto width = static_cast<std::uint32_t>(s.out.w);
  float sums[K * K] = {};
  if (channel < s.channels) {
    for (std::int64_t i = begin + first; i < end; i += step) {
      // Columns, then strips, then images, whatever the layout.
      const Divider &by_w = s.nchw ? s.by_inner : s.by_middle, &by_strip = s.nchw ? s.by_middle : s.by_outer;
      const auto at = static_cast<std::uint32_t>(i);
      const std::uint32_t row = by_w.quotient(at), image = by_strip.quotient(row);
      add_strip<K, S>(images, dy, s,
                      {static_cast<int>(image), channel, static_cast<int>(at - row * width),
                       static_cast<int>(row - image * by_strip.divisor())},
                      sums);
    }
  }
  float* const out = parts + static_cast<std::int64_t>(split) * K * K * s.channels;
#pragma unroll
  for (int ky = 0; ky < K; ++ky) {
#pragma unroll
    for (int kx = 0; kx < K; ++kx) {
      float sum = sums[ky * K + kx];
      if (s.nchw)
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
      if (!s.nchw || lane == 0) shared[warp][kx][lane] = sum;
    }
    __syncthreads();
    const int results = s.nchw ? K : K * 32;
    for (int i = static_cast<int>(threadIdx.x); i < results; i += kThreads) {
      const int kx = s.nchw ? i : i / 32, of_lane = s.nchw ? 0 : i % 32;
      const int to = s.nchw ? group : group * 32 + of_lane;
      if (to >= s.channels) continue;
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += shared[w][kx][of_lane];
      out[(ky * K + kx) * s.channels + to] = sum;
    }
    __syncthreads();
  }
}

__global__ void add_parts_kernel(const float* parts, float* gradient, int splits, std::int64_t elements) {
  for (std::int64_t i = grid_index(); i < elements; i += grid_size()) {
    float sum = 0;
    for (int split = 0; split < splits; ++split) sum += parts[split * elements + i];
    gradient[i] = sum;
  }
}

// ------------------------------------------------------------------------------------------------------
// choice

using ImageKernel = void (*)(const float*, const float*, float*, Strips, std::int64_t);
using FilterKernel = void (*)(const float*, const float*, float*, Strips, Parts);

struct Kernels {
  ImageKernel forward, backward_input;
  FilterKernel filter_parts;
};

template <int K>
Kernels of_stride(std::int64_t stride) {
  if (stride == 1) return {forward_kernel<K, 1>, backward_input_kernel<K, 1>, filter_parts_kernel<K, 1>};
  return {forward_kernel<K, 2>, backward_input_kernel<K, 2>, filter_parts_kernel<K, 2>};
}

Kernels kernels_of(const Convolution& conv) {
  const std::int64_t stride = conv.window.h.stride;
  if (conv.window.h.kernel == 3) return of_stride<3>(stride);
  return conv.window.h.kernel == 5 ? of_stride<5>(stride) : of_stride<7>(stride);
}

PreparedKernel image_kernel(ImageKernel function, const Convolution& conv, const Strips& strips,
                            const Layout& result, int from) {
  const std::int64_t count = conv.batch * conv.in_c * result.w * Strips::strips_of(result, strips.shift);
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& a) {
    launch(function, blocks_for(count), kThreads, 0, a.stream, a.in<float>(from), a.in<float>(1),
           a.out<float>(0), strips, count);
  };
  return kernel;
}

}  // namespace

bool takes_strips(const Convolution& conv) {
  const WindowAxis &h = conv.window.h, &w = conv.window.w;
  constexpr std::int64_t kMostBlocks = 65535;  // across the second axis of a grid
  return conv.in_c == conv.out_c && conv.in_c <= kMostBlocks && h.kernel == w.kernel &&
         h.stride == w.stride && h.dilation == 1 && w.dilation == 1 && (h.stride == 1 || h.stride == 2) &&
         (h.kernel == 3 || h.kernel == 5 || h.kernel == 7);
}

PreparedKernel depthwise_forward(const Convolution& conv) {
  const Layout result(conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw());
  return image_kernel(kernels_of(conv).forward, conv, Strips(conv, result, 0), result, 0);
}

PreparedKernel depthwise_backward_input(const Convolution& conv) {
  const Layout result(conv.in_h, conv.in_w, conv.in_c, conv.window.axes.nchw());
  const auto shift = static_cast<int>(conv.window.h.pad_before % conv.window.h.stride);
  return image_kernel(kernels_of(conv).backward_input, conv, Strips(conv, result, shift), result, 2);
}

PreparedKernel depthwise_backward_filter(const Convolution& conv) {
  const Strips strips(conv, Layout(conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw()), 0);
  const Parts parts(conv, strips);
  const std::int64_t elements = conv.window.h.kernel * conv.window.w.kernel * conv.out_c;
  const FilterKernel function = kernels_of(conv).filter_parts;
  PreparedKernel kernel;
  kernel.scratch_bytes = sizeof(float) * static_cast<std::size_t>(parts.splits * elements);
  kernel.run = [=](const KernelArgs& a) {
    const dim3 blocks(static_cast<unsigned>(parts.splits), static_cast<unsigned>(parts.groups));
    launch(function, blocks, kThreads, 0, a.stream, a.in<float>(0), a.in<float>(2),
           static_cast<float*>(a.scratch), strips, parts);
    launch(add_parts_kernel, blocks_for(elements), kThreads, 0, a.stream,
           static_cast<const float*>(a.scratch), a.out<float>(0), parts.splits, elements);
  };
  return kernel;
}

}  // namespace braid::cuda
