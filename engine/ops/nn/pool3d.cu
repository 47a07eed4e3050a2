// CUDA kernels of MaxPool3D, AvgPool3D and their gradients (pooling.h), a thread an element. An element of a
// gradient adds what the windows that hold it give, in row-major order. Where only the first maximum of a
// window has its gradient (_first_maximum), its place is found before, into scratch memory.
#include <algorithm>
#include <limits>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/nn/pooling.h"

namespace braid {
namespace {

/// One direction of the windows.
struct Side {
  std::int64_t kernel, stride, pad, in, out;

  Side(const WindowAxis& axis, std::int64_t in_size, std::int64_t out_size)
      : kernel(axis.kernel), stride(axis.stride), pad(axis.pad_before), in(in_size), out(out_size) {}

  __device__ std::int64_t first(std::int64_t window) const {
    const std::int64_t start = window * stride - pad;
    return start > 0 ? start : 0;
  }
  __device__ std::int64_t end(std::int64_t window) const {
    const std::int64_t behind = window * stride - pad + kernel;
    return behind < in ? behind : in;
  }
  __device__ std::int64_t size(std::int64_t window) const { return end(window) - first(window); }
  /// The windows that hold an input position: [first_window, end_window).
  __device__ std::int64_t first_window(std::int64_t at) const {
    return at + pad < kernel ? 0 : (at + pad - kernel) / stride + 1;
  }
  __device__ std::int64_t end_window(std::int64_t at) const {
    const std::int64_t behind = (at + pad) / stride + 1;
    return behind < out ? behind : out;
  }
};

struct Geometry {
  Side d, h, w;
  std::int64_t channels;

  explicit Geometry(const Pooling& p)
      : d(p.window.d, p.in_d, p.out_d),
        h(p.window.h, p.in_h, p.out_h),
        w(p.window.w, p.in_w, p.out_w),
        channels(p.channels) {}

  __device__ std::int64_t input(std::int64_t image, std::int64_t z, std::int64_t r, std::int64_t s,
                                std::int64_t channel) const {
    return (((image * d.in + z) * h.in + r) * w.in + s) * channels + channel;
  }
  __device__ std::int64_t output(std::int64_t image, std::int64_t z, std::int64_t r, std::int64_t s,
                                 std::int64_t channel) const {
    return (((image * d.out + z) * h.out + r) * w.out + s) * channels + channel;
  }
};

/// Where element i of [images, planes, rows, columns, channels] is.
struct Place {
  std::int64_t image, plane, row, column, channel;
  __device__ Place(std::int64_t i, std::int64_t planes, std::int64_t rows, std::int64_t columns,
                   std::int64_t channels) {
    channel = i % channels;
    i /= channels;
    column = i % columns;
    i /= columns;
    row = i % rows;
    i /= rows;
    plane = i % planes;
    image = i / planes;
  }
};

template <class T, bool kMax>
__global__ void forward_kernel(const __grid_constant__ Geometry g, const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const Place at(i, g.d.out, g.h.out, g.w.out, g.channels);
    T result = kMax ? std::numeric_limits<T>::lowest() : T(0);
    for (std::int64_t z = g.d.first(at.plane); z < g.d.end(at.plane); ++z)
      for (std::int64_t r = g.h.first(at.row); r < g.h.end(at.row); ++r)
        for (std::int64_t s = g.w.first(at.column); s < g.w.end(at.column); ++s) {
          const T tap = x[g.input(at.image, z, r, s, at.channel)];
          if constexpr (kMax)
            result = tap > result ? tap : result;
          else
            result += tap;
        }
    if constexpr (!kMax)
      result /= static_cast<T>(g.d.size(at.plane) * g.h.size(at.row) * g.w.size(at.column));
    y[i] = result;
  }
}

/// The input element that first holds each window's maximum; -1: none does.
template <class T>
__global__ void places_kernel(const __grid_constant__ Geometry g, const T* x, const T* y,
                              std::int64_t* places, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const Place at(i, g.d.out, g.h.out, g.w.out, g.channels);
    const T top = y[i];
    std::int64_t found = -1;
    for (std::int64_t z = g.d.first(at.plane); z < g.d.end(at.plane); ++z)
      for (std::int64_t r = g.h.first(at.row); r < g.h.end(at.row); ++r)
        for (std::int64_t s = g.w.first(at.column); s < g.w.end(at.column); ++s) {
          const std::int64_t in = g.input(at.image, z, r, s, at.channel);
          if (found < 0 && x[in] == top) found = in;
        }
    places[i] = found;
  }
}

enum class Gives { Mean, FirstMaximum, Maxima };

/// dx by what the windows that hold an element give to it. `places`: of first maxima; x, y: of all.
template <class T, Gives kGives>
__global__ void gather_kernel(const __grid_constant__ Geometry g, const std::int64_t* places, const T* x,
                              const T* y, const T* dy, T* dx, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const Place at(i, g.d.in, g.h.in, g.w.in, g.channels);
    T sum = T(0);
    for (std::int64_t z = g.d.first_window(at.plane); z < g.d.end_window(at.plane); ++z)
      for (std::int64_t r = g.h.first_window(at.row); r < g.h.end_window(at.row); ++r)
        for (std::int64_t s = g.w.first_window(at.column); s < g.w.end_window(at.column); ++s) {
          const std::int64_t out = g.output(at.image, z, r, s, at.channel);
          if constexpr (kGives == Gives::Mean)
            sum += dy[out] / static_cast<T>(g.d.size(z) * g.h.size(r) * g.w.size(s));
          else if (kGives == Gives::FirstMaximum ? places[out] == i : x[i] == y[out])
            sum += dy[out];
        }
    dx[i] = sum;
  }
}

template <class T, bool kMax>
PreparedKernel forward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [g = Geometry(prepared_pooling(c, c.inputs[0].shape)),
                n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    cuda::launch(forward_kernel<T, kMax>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, g, a.in<T>(0),
                 a.out<T>(0), n);
  };
  return kernel;
}

/// The pooling of a gradient's node. `dy` is the input that holds the output's gradient.
Pooling pooling_of_gradient(const PrepareContext& c, std::size_t dy) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  if (c.inputs[dy].shape.elements() != p.images * p.out_image())
    c.fail("the output's gradient has shape " + c.inputs[dy].shape.to_string() + ", volumes of shape " +
           c.outputs[0].shape.to_string() + " do not give it");
  return p;
}

template <class T>
PreparedKernel max_backward(const PrepareContext& c) {
  const Pooling p = pooling_of_gradient(c, 2);
  const std::int64_t windows = p.images * p.out_image(), n = c.outputs[0].shape.elements();
  const bool first_only = c.attr<bool>("_first_maximum", false);
  PreparedKernel kernel;
  if (first_only) kernel.scratch_bytes = static_cast<std::size_t>(windows) * sizeof(std::int64_t);
  kernel.run = [g = Geometry(p), windows, n, first_only](const KernelArgs& a) {
    if (n == 0) return;
    auto* places = static_cast<std::int64_t*>(a.scratch);
    if (first_only && windows > 0)
      cuda::launch(places_kernel<T>, cuda::blocks_for(windows), cuda::kThreads, 0, a.stream, g, a.in<T>(0),
                   a.in<T>(1), places, windows);
    cuda::launch(first_only ? gather_kernel<T, Gives::FirstMaximum> : gather_kernel<T, Gives::Maxima>,
                 cuda::blocks_for(n), cuda::kThreads, 0, a.stream, g,
                 static_cast<const std::int64_t*>(places), a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0),
                 n);
  };
  return kernel;
}

template <class T>
PreparedKernel average_backward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [g = Geometry(pooling_of_gradient(c, 1)),
                n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    cuda::launch(gather_kernel<T, Gives::Mean>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, g,
                 static_cast<const std::int64_t*>(nullptr), static_cast<const T*>(nullptr),
                 static_cast<const T*>(nullptr), a.in<T>(1), a.out<T>(0), n);
  };
  return kernel;
}

using Prepare = PreparedKernel (*)(const PrepareContext&);

void add(OpRegistry& registry, const char* op, Prepare f32, Prepare f64) {
  registry.add_cuda(op, [f32, f64](const PrepareContext& c) {
    return c.outputs[0].dtype == DType::Float32 ? f32(c) : f64(c);
  });
}

}  // namespace

void register_pool3d_cuda(OpRegistry& registry) {
  add(registry, "MaxPool3D", forward<float, true>, forward<double, true>);
  add(registry, "AvgPool3D", forward<float, false>, forward<double, false>);
  add(registry, "MaxPool3DGrad", max_backward<float>, max_backward<double>);
  add(registry, "AvgPool3DGrad", average_backward<float>, average_backward<double>);
}

}  // namespace braid
