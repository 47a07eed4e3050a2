// What CUDA kernels of pooling share (pool2d.cu, pool_places.cu): where windows and their elements are.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/nn/pooling.h"

namespace braid::cuda_pooling {

using cuda::Pack;

/// What elements of T are compared and added as.
template <class T>
using Number = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
__device__ Number<T> as_number(T x) {
  return static_cast<Number<T>>(x);
}

/// One direction of the windows.
struct Side {
  int kernel, stride, pad, in, out, cells;  // cells: strides that cover the input

  Side(const WindowAxis& axis, std::int64_t in_size, std::int64_t out_size)
      : kernel(static_cast<int>(axis.kernel)),
        stride(static_cast<int>(std::min<std::int64_t>(axis.stride, 1 << 30))),
        pad(static_cast<int>(axis.pad_before)),
        in(static_cast<int>(in_size)),
        out(static_cast<int>(out_size)),
        cells(static_cast<int>((in_size + axis.pad_before + axis.stride - 1) / axis.stride)) {}

  /// Whether windows have elements in common.
  bool overlaps() const { return stride < kernel; }
  bool is(int size, int step) const { return kernel == size && stride == step; }

  /// The first input position of a window, which may lie in the padding.
  __device__ int start(int window) const { return window * stride - pad; }
  __device__ int first(int window) const { return max(start(window), 0); }
  __device__ int end(int window) const { return start(window) + min(kernel, in - start(window)); }
  /// The windows that hold an input position: [first_window, end_window).
  __device__ int first_window(int at) const {
    const int padded = at + pad;
    return padded < kernel ? 0 : (padded - kernel) / stride + 1;
  }
  __device__ int end_window(int at) const { return min((at + pad) / stride + 1, out); }
};

/// Images [., h, w, channels], with channels counted in packs; I holds every element's number.
template <class I>
struct Geometry {
  Side h, w;
  I channels;

  Geometry(const Pooling& p, int pack)
      : h(p.window.h, p.in_h, p.out_h),
        w(p.window.w, p.in_w, p.out_w),
        channels(static_cast<I>(p.channels / pack)) {}
};

/// Where pack i of [images, rows, columns, channels] is.
template <class I>
struct Place {
  I image;
  int row, column;
  I channel;
  __device__ Place(I i, int rows, int columns, I channels) {
    const I pixel = i / channels, line = pixel / static_cast<I>(columns);
    channel = i - pixel * channels;
    column = static_cast<int>(pixel - line * static_cast<I>(columns));
    image = line / static_cast<I>(rows);
    row = static_cast<int>(line - image * static_cast<I>(rows));
  }
};

template <class I>
__device__ I input_at(const Geometry<I>& g, I image, int row, int column, I channel) {
  return ((image * static_cast<I>(g.h.in) + static_cast<I>(row)) * static_cast<I>(g.w.in) +
          static_cast<I>(column)) *
             g.channels +
         channel;
}
template <class I>
__device__ I output_at(const Geometry<I>& g, I image, int row, int column, I channel) {
  return ((image * static_cast<I>(g.h.out) + static_cast<I>(row)) * static_cast<I>(g.w.out) +
          static_cast<I>(column)) *
             g.channels +
         channel;
}

/// Calls `with` with an index type that holds all elements, and the size of packs as a constant.
template <class T, class With>
void dispatch(const Pooling& p, bool aligned, const With& with) {
  constexpr int kMost = cuda::kPackOf<T>;
  constexpr std::int64_t kNarrow = std::int64_t{1} << 31;  // leaves room for a step of the grid
  const bool narrow = p.images * std::max(p.in_image(), p.out_image()) < kNarrow;
  const auto of_index = [&]<class I>(I) {
    if (aligned && p.channels % kMost == 0)
      with(I{}, std::integral_constant<int, kMost>{});
    else
      with(I{}, std::integral_constant<int, 1>{});
  };
  if (narrow)
    of_index(std::uint32_t{});
  else
    of_index(std::int64_t{});
}

template <class To, class From>
auto* as_packs(From* pointer) {
  if constexpr (std::is_const_v<From>)
    return reinterpret_cast<const To*>(pointer);
  else
    return reinterpret_cast<To*>(pointer);
}

/// Calls `with` with an element of `dtype`: float32 and float64, and with kHalves float16 and bfloat16.
template <bool kHalves, class With>
PreparedKernel of_type(DType dtype, const With& with) {
  if constexpr (kHalves) {
    if (dtype == DType::Float16) return with(Float16{});
    if (dtype == DType::BFloat16) return with(BFloat16{});
  }
  if (dtype == DType::Float32) return with(float{});
  return with(double{});
}

}  // namespace braid::cuda_pooling
