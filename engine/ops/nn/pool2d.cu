// CUDA kernels of MaxPool, AvgPool and their gradients (pooling.h). A thread takes neighbouring channels of a
// pixel, 16 bytes where addresses and channels allow it. Gradients:
//   windows that do not overlap     a thread writes all of a window, whose maximum it finds on the way
//   maxima of windows that overlap  which position each window's gradient goes to, into scratch memory; then
//                                   an input element adds those of its windows, in row-major order
//   means                           an input element adds its windows' shares, in row-major order
// Halves are compared and added as float32.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/nn/pooling.h"

namespace braid {
namespace {

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

/// Windows of kH x kW, so that their loads are under way together; 0: of any size.
template <class T, int kCount, bool kMax, int kH, int kW, class I>
__global__ void forward_kernel(const __grid_constant__ Geometry<I> g, const Pack<T, kCount>* x,
                               Pack<T, kCount>* y, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.out, g.w.out, g.channels);
    using N = Number<T>;
    const N none = kMax ? std::numeric_limits<N>::lowest() : N(0);
    N result[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) result[e] = none;
    const auto take = [&](const Pack<T, kCount>& tap) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const N value = as_number(tap.at[e]);
        if constexpr (kMax)
          result[e] = value > result[e] ? value : result[e];
        else
          result[e] += value;
      }
    };
    const int top = g.h.start(at.row), left = g.w.start(at.column);
    if constexpr (kH > 0) {
      Pack<T, kCount> taps[kH * kW];
#pragma unroll
      for (int t = 0; t < kH * kW; ++t) {
        const int r = top + t / kW, s = left + t % kW;
        if (r >= 0 && r < g.h.in && s >= 0 && s < g.w.in)
          taps[t] = x[input_at(g, at.image, r, s, at.channel)];
        else
#pragma unroll
          for (int e = 0; e < kCount; ++e) taps[t].at[e] = static_cast<T>(none);
      }
#pragma unroll
      for (int t = 0; t < kH * kW; ++t) take(taps[t]);
    } else {
      for (int r = g.h.first(at.row); r < g.h.end(at.row); ++r)
        for (int s = g.w.first(at.column); s < g.w.end(at.column); ++s)
          take(x[input_at(g, at.image, r, s, at.channel)]);
    }
    if constexpr (!kMax) {
      const N count =
          static_cast<N>((g.h.end(at.row) - g.h.first(at.row)) * (g.w.end(at.column) - g.w.first(at.column)));
#pragma unroll
      for (int e = 0; e < kCount; ++e) result[e] /= count;
    }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(result[e]);
    y[i] = rounded;
  }
}

/// dx of windows of maxima that do not overlap, a thread a cell: the stride that begins with a window, or
/// lies behind the last one. kH x kW: of the window and of the stride; 0: of any sizes.
template <class T, int kCount, int kH, int kW, class I>
__global__ void cells_kernel(const __grid_constant__ Geometry<I> g, const Pack<T, kCount>* x,
                             const Pack<T, kCount>* y, const Pack<T, kCount>* dy, Pack<T, kCount>* dx, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.cells, g.w.cells, g.channels);
    const bool is_window = at.row < g.h.out && at.column < g.w.out;
    Pack<T, kCount> top, left;  // the maximum, and the gradient that has not found its place
#pragma unroll
    for (int e = 0; e < kCount; ++e) top.at[e] = left.at[e] = T(0);
    if (is_window) {
      const I out = output_at(g, at.image, at.row, at.column, at.channel);
      top = y[out];
      left = dy[out];
    }
    const int first_row = g.h.start(at.row), first_column = g.w.start(at.column);
    const auto give = [&](const Pack<T, kCount>& tap, bool in_window) {
      Pack<T, kCount> given;
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const bool here = in_window && as_number(tap.at[e]) == as_number(top.at[e]);
        given.at[e] = here ? left.at[e] : T(0);
        if (here) left.at[e] = T(0);
      }
      return given;
    };
    if constexpr (kH > 0) {
      Pack<T, kCount> taps[kH * kW];
      bool inside[kH * kW];
#pragma unroll
      for (int t = 0; t < kH * kW; ++t) {
        const int r = first_row + t / kW, s = first_column + t % kW;
        inside[t] = r >= 0 && r < g.h.in && s >= 0 && s < g.w.in;
        if (inside[t] && is_window) taps[t] = x[input_at(g, at.image, r, s, at.channel)];
      }
#pragma unroll
      for (int t = 0; t < kH * kW; ++t)
        if (inside[t])
          dx[input_at(g, at.image, first_row + t / kW, first_column + t % kW, at.channel)] =
              give(taps[t], is_window);
    } else {
      for (int r = max(first_row, 0); r < min(first_row + g.h.stride, g.h.in); ++r)
        for (int s = max(first_column, 0); s < min(first_column + g.w.stride, g.w.in); ++s) {
          const I in = input_at(g, at.image, r, s, at.channel);
          const bool in_window = is_window && r < first_row + g.h.kernel && s < first_column + g.w.kernel;
          Pack<T, kCount> tap = top;
          if (in_window) tap = x[in];
          dx[in] = give(tap, in_window);
        }
    }
  }
}

/// The tap, from 1 on, of each window that first holds its maximum; 0: none does.
template <class T, int kCount, class Tap, class I>
__global__ void taps_kernel(const __grid_constant__ Geometry<I> g, const Pack<T, kCount>* x,
                            const Pack<T, kCount>* y, Pack<Tap, kCount>* taps, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.out, g.w.out, g.channels);
    const Pack<T, kCount> top = y[i];
    Pack<Tap, kCount> found;
#pragma unroll
    for (int e = 0; e < kCount; ++e) found.at[e] = 0;
    for (int r = g.h.first(at.row); r < g.h.end(at.row); ++r)
      for (int s = g.w.first(at.column); s < g.w.end(at.column); ++s) {
        const Pack<T, kCount> tap = x[input_at(g, at.image, r, s, at.channel)];
        const int number = (r - g.h.start(at.row)) * g.w.kernel + s - g.w.start(at.column) + 1;
#pragma unroll
        for (int e = 0; e < kCount; ++e)
          if (found.at[e] == 0 && as_number(tap.at[e]) == as_number(top.at[e]))
            found.at[e] = static_cast<Tap>(number);
      }
    taps[i] = found;
  }
}

/// dx by what the windows that hold an element give to it; `taps` is not read for means.
template <class T, int kCount, bool kMax, class Tap, class I>
__global__ void gather_kernel(const __grid_constant__ Geometry<I> g, const Pack<Tap, kCount>* taps,
                              const Pack<T, kCount>* dy, Pack<T, kCount>* dx, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.in, g.w.in, g.channels);
    using N = Number<T>;
    N sum[kCount] = {};
    for (int r = g.h.first_window(at.row); r < g.h.end_window(at.row); ++r)
      for (int s = g.w.first_window(at.column); s < g.w.end_window(at.column); ++s) {
        const I out = output_at(g, at.image, r, s, at.channel);
        const Pack<T, kCount> given = dy[out];
        if constexpr (kMax) {
          const Pack<Tap, kCount> tap = taps[out];
          const int own = (at.row - g.h.start(r)) * g.w.kernel + at.column - g.w.start(s) + 1;
#pragma unroll
          for (int e = 0; e < kCount; ++e)
            if (static_cast<int>(tap.at[e]) == own) sum[e] += as_number(given.at[e]);
        } else {
          const N count = static_cast<N>((g.h.end(r) - g.h.first(r)) * (g.w.end(s) - g.w.first(s)));
#pragma unroll
          for (int e = 0; e < kCount; ++e) sum[e] += as_number(given.at[e]) / count;
        }
      }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(sum[e]);
    dx[i] = rounded;
  }
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

template <class T, bool kMax>
PreparedKernel forward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = prepared_pooling(c, c.inputs[0].shape),
                n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const bool aligned = cuda::is_aligned16(a.inputs[0]) && cuda::is_aligned16(a.outputs[0]);
    dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
      constexpr int kCount = Count::value;
      const auto launch = [&](auto run) {
        cuda::launch(run, cuda::blocks_for(n / kCount), cuda::kThreads, 0, a.stream, Geometry<I>(p, kCount),
                     as_packs<Pack<T, kCount>>(a.in<T>(0)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                     static_cast<I>(n / kCount));
      };
      if (p.window.h.kernel == 2 && p.window.w.kernel == 2)
        launch(forward_kernel<T, kCount, kMax, 2, 2, I>);
      else if (p.window.h.kernel == 3 && p.window.w.kernel == 3)
        launch(forward_kernel<T, kCount, kMax, 3, 3, I>);
      else
        launch(forward_kernel<T, kCount, kMax, 0, 0, I>);
    });
  };
  return kernel;
}

/// The pooling of a gradient's node. `dy` is the input that holds the output's gradient.
Pooling pooling_of_gradient(const PrepareContext& c, int dy) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  const Shape& shape = c.inputs[static_cast<std::size_t>(dy)].shape;
  if (shape.elements() != p.images * p.out_image())
    c.fail("the output's gradient has shape " + shape.to_string() + ", images of shape " +
           c.outputs[0].shape.to_string() + " do not give it");
  return p;
}

template <class T>
PreparedKernel average_backward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = pooling_of_gradient(c, 1), n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const bool aligned = cuda::is_aligned16(a.inputs[1]) && cuda::is_aligned16(a.outputs[0]);
    dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
      constexpr int kCount = Count::value;
      cuda::launch(gather_kernel<T, kCount, false, std::uint8_t, I>, cuda::blocks_for(n / kCount),
                   cuda::kThreads, 0, a.stream, Geometry<I>(p, kCount),
                   static_cast<const Pack<std::uint8_t, kCount>*>(nullptr),
                   as_packs<Pack<T, kCount>>(a.in<T>(1)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                   static_cast<I>(n / kCount));
    });
  };
  return kernel;
}

template <class T>
void run_cells(const Pooling& p, const KernelArgs& a, bool aligned) {
  dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
    constexpr int kCount = Count::value;
    const Geometry<I> g(p, kCount);
    const std::int64_t n = p.images * g.h.cells * g.w.cells * (p.channels / kCount);
    const auto launch = [&](auto run) {
      cuda::launch(run, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, g,
                   as_packs<Pack<T, kCount>>(a.in<T>(0)), as_packs<Pack<T, kCount>>(a.in<T>(1)),
                   as_packs<Pack<T, kCount>>(a.in<T>(2)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                   static_cast<I>(n));
    };
    const auto is_two = [](const Side& side) { return side.kernel == 2 && side.stride == 2; };
    if (is_two(g.h) && is_two(g.w))
      launch(cells_kernel<T, kCount, 2, 2, I>);
    else
      launch(cells_kernel<T, kCount, 0, 0, I>);
  });
}

template <class T, class Tap>
void run_taps(const Pooling& p, const KernelArgs& a, bool aligned) {
  dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
    constexpr int kCount = Count::value;
    const Geometry<I> g(p, kCount);
    const std::int64_t in = p.images * p.in_image() / kCount, out = p.images * p.out_image() / kCount;
    auto* taps = static_cast<Pack<Tap, kCount>*>(a.scratch);
    cuda::launch(taps_kernel<T, kCount, Tap, I>, cuda::blocks_for(out), cuda::kThreads, 0, a.stream, g,
                 as_packs<Pack<T, kCount>>(a.in<T>(0)), as_packs<Pack<T, kCount>>(a.in<T>(1)), taps,
                 static_cast<I>(out));
    cuda::launch(gather_kernel<T, kCount, true, Tap, I>, cuda::blocks_for(in), cuda::kThreads, 0, a.stream, g,
                 static_cast<const Pack<Tap, kCount>*>(taps), as_packs<Pack<T, kCount>>(a.in<T>(2)),
                 as_packs<Pack<T, kCount>>(a.out<T>(0)), static_cast<I>(in));
  });
}

template <class T>
PreparedKernel max_backward(const PrepareContext& c) {
  const Pooling p = pooling_of_gradient(c, 2);
  const std::int64_t n = c.outputs[0].shape.elements(), windows = p.images * p.out_image();
  const bool overlaps = p.window.h.stride < p.window.h.kernel || p.window.w.stride < p.window.w.kernel;
  const bool few_taps = p.taps() < 256;
  PreparedKernel kernel;
  if (overlaps) kernel.scratch_bytes = static_cast<std::size_t>(windows) * (few_taps ? 1 : 4);
  kernel.run = [p, n, overlaps, few_taps](const KernelArgs& a) {
    if (n == 0) return;
    bool aligned = cuda::is_aligned16(a.outputs[0]);
    for (int i = 0; i < 3; ++i) aligned = aligned && cuda::is_aligned16(a.inputs[i]);
    if (!overlaps)
      run_cells<T>(p, a, aligned);
    else
      few_taps ? run_taps<T, std::uint8_t>(p, a, aligned) : run_taps<T, std::uint32_t>(p, a, aligned);
  };
  return kernel;
}

/// Calls `with` with an element of the type of output 0.
template <class With>
PreparedKernel of_type(const PrepareContext& c, const With& with) {
  switch (c.outputs[0].dtype) {
    case DType::Float16:
      return with(Float16{});
    case DType::BFloat16:
      return with(BFloat16{});
    case DType::Float32:
      return with(float{});
    default:
      return with(double{});
  }
}

}  // namespace

void register_pool2d_cuda(OpRegistry& registry) {
  cuda_takes_halves({"AvgPool", "AvgPoolGrad"});
  registry.add_cuda("MaxPool", [](const PrepareContext& c) {
    return of_type(c, [&]<class T>(T) { return forward<T, true>(c); });
  });
  registry.add_cuda("AvgPool", [](const PrepareContext& c) {
    return of_type(c, [&]<class T>(T) { return forward<T, false>(c); });
  });
  registry.add_cuda("MaxPoolGrad", [](const PrepareContext& c) {
    return of_type(c, [&]<class T>(T) { return max_backward<T>(c); });
  });
  registry.add_cuda("AvgPoolGrad", [](const PrepareContext& c) {
    return of_type(c, [&]<class T>(T) { return average_backward<T>(c); });
  });
}

}  // namespace braid
