// What the kernels of depthwise_strips.cu have in common: how images lie, which strip a thread has, and what
// it reads and writes.
#pragma once

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/nn/convolution.h"

namespace braid::cuda::strips {

inline constexpr int kRows = 4;  // of a strip

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

/// The neighbouring channels that a thread takes: of halves two, which are one load.
template <class T>
inline constexpr int kChannelsOf = sizeof(T) == 2 ? 2 : 1;

/// A number of each of them.
template <int C>
struct Numbers {
  float at[C] = {};
  __device__ void add_product(const Numbers& a, const Numbers& b) {
#pragma unroll
    for (int c = 0; c < C; ++c) at[c] += a.at[c] * b.at[c];
  }
};
template <class T>
using NumbersOf = Numbers<kChannelsOf<T>>;

template <class T>
__device__ NumbersOf<T> load(const T* from) {
  constexpr int C = kChannelsOf<T>;
  NumbersOf<T> numbers;
  if constexpr (C == 1) {
    numbers.at[0] = static_cast<float>(__ldg(from));
  } else {
    const Pack<T, C> pack = *reinterpret_cast<const Pack<T, C>*>(from);
#pragma unroll
    for (int c = 0; c < C; ++c) numbers.at[c] = static_cast<float>(pack.at[c]);
  }
  return numbers;
}
template <class T>
__device__ void store(T* to, const NumbersOf<T>& numbers) {
  constexpr int C = kChannelsOf<T>;
  Pack<T, C> pack;
#pragma unroll
  for (int c = 0; c < C; ++c) pack.at[c] = static_cast<T>(numbers.at[c]);
  *reinterpret_cast<Pack<T, C>*>(to) = pack;
}

/// Images that a strip's window is over, or that it is part of.
struct Place {
  int image, channel, x, strip;
};

struct Strips {
  Layout in, out;  // of the convolution
  int channels, pad_h, pad_w;
  int together;  // channels of a thread
  bool nchw;
  int shift;  // rows in front of the image with which the first strip begins
  int rows;   // of the filter
  Divider by_inner, by_middle, by_outer;

  /// Strips of `result`.
  Strips(const Convolution& conv, const Layout& result, int shift, int together)
      : in(conv.in_h, conv.in_w, conv.in_c, conv.window.axes.nchw()),
        out(conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw()),
        channels(static_cast<int>(conv.in_c)),
        pad_h(static_cast<int>(conv.window.h.pad_before)),
        pad_w(static_cast<int>(conv.window.w.pad_before)),
        together(together),
        nchw(conv.window.axes.nchw()),
        shift(shift),
        rows(static_cast<int>(conv.window.h.kernel)),
        by_inner(nchw ? result.w : conv.in_c / together),
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
    return {static_cast<int>(image), inner * together, middle, outer};
  }
};

__device__ inline bool is_inside(int at, int size) {
  return static_cast<unsigned>(at) < static_cast<unsigned>(size);
}

/// Of row y of a column of an image; 0 beside it, and where nobody asks for it.
template <class T>
__device__ NumbersOf<T> row_of(const T* column, int y, const Layout& layout, bool asked = true) {
  return asked && is_inside(y, layout.h) ? load(column + y * layout.of_row) : NumbersOf<T>{};
}

/// K rows of a filter, or of a filter of one column at most K.
template <class T, int K, int KX>
struct Taps {
  NumbersOf<T> of_row[K];

  /// Column kx of a channel's filter, in [rows, KX, channels].
  __device__ Taps(const T* filter, int kx, int channel, const Strips& s) {
#pragma unroll
    for (int ky = 0; ky < K; ++ky)
      if (KX > 1 || ky < s.rows) of_row[ky] = load(filter + (ky * KX + kx) * s.channels + channel);
  }
};

template <class T>
__device__ void store(T* images, const Layout& layout, const Place& at, int y0,
                      const NumbersOf<T> (&sums)[kRows]) {
  T* const column =
      images + at.image * layout.of_image + at.channel * layout.of_channel + at.x * layout.of_column;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (is_inside(y0 + r, layout.h)) store(column + (y0 + r) * layout.of_row, sums[r]);
}

}  // namespace braid::cuda::strips
