// CUDA kernels of MaxPool, AvgPool and their gradients (pooling.h), a thread an element. Gradients are
// gathered: an input element looks at the windows that hold it, in row-major order, so sums have one order.
#include <limits>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/nn/pooling.h"

namespace braid {
namespace {

__device__ std::int64_t quotient(std::int64_t a, std::int64_t b) {
  // Divisions of 32 bits where they do: those of 64 are many instructions.
  return a <= 0xffffffffLL && b <= 0xffffffffLL
             ? static_cast<std::int64_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b))
             : a / b;
}

/// Where element i of [images, h, w, channels] is.
struct Place {
  std::int64_t image, row, column, channel;
  __device__ Place(std::int64_t i, std::int64_t h, std::int64_t w, std::int64_t channels) {
    const std::int64_t pixel = quotient(i, channels), line = quotient(pixel, w);
    channel = i - pixel * channels;
    column = pixel - line * w;
    image = quotient(line, h);
    row = line - image * h;
  }
};

template <class T, bool kMax>
__global__ void forward_kernel(const __grid_constant__ Pooling p, const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const Place at(i, p.out_h, p.out_w, p.channels);
    const PoolSpan h(p.window.h, at.row, p.in_h), w(p.window.w, at.column, p.in_w);
    const T* image = x + at.image * p.in_image() + at.channel;
    T result = kMax ? std::numeric_limits<T>::lowest() : T(0);
    for (std::int64_t r = h.first; r < h.end; ++r)
      for (std::int64_t s = w.first; s < w.end; ++s) {
        const T tap = image[(r * p.in_w + s) * p.channels];
        if constexpr (kMax)
          result = tap > result ? tap : result;
        else
          result += tap;
      }
    y[i] = kMax ? result : result / static_cast<T>(h.size() * w.size());
  }
}

/// The windows along one axis that hold input position `at`: [first, end).
struct Windows {
  std::int64_t first, end;
  __device__ Windows(const WindowAxis& axis, std::int64_t at, std::int64_t out) {
    const std::int64_t padded = at + axis.pad_before;
    first = padded < axis.kernel ? 0 : quotient(padded - axis.kernel, axis.stride) + 1;
    const std::int64_t last = quotient(padded, axis.stride) + 1;
    end = last < out ? last : out;
  }
};

/// Whether an earlier position of the window than (row, column) holds the maximum too.
template <class T>
__device__ bool is_taken(const Pooling& p, const T* image, const PoolSpan& h, const PoolSpan& w,
                         std::int64_t row, std::int64_t column, T top) {
  for (std::int64_t r = h.first; r <= row; ++r)
    for (std::int64_t s = w.first; s < (r == row ? column : w.end); ++s)
      if (image[(r * p.in_w + s) * p.channels] == top) return true;
  return false;
}

/// `x` and `y` are not read for averages.
template <class T, bool kMax>
__global__ void backward_kernel(const __grid_constant__ Pooling p, const T* x, const T* y, const T* dy, T* dx,
                                std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const Place at(i, p.in_h, p.in_w, p.channels);
    const Windows rows(p.window.h, at.row, p.out_h), columns(p.window.w, at.column, p.out_w);
    const T* image = kMax ? x + at.image * p.in_image() + at.channel : nullptr;
    T sum{};
    for (std::int64_t r = rows.first; r < rows.end; ++r)
      for (std::int64_t s = columns.first; s < columns.end; ++s) {
        const std::int64_t out = at.image * p.out_image() + (r * p.out_w + s) * p.channels + at.channel;
        const PoolSpan h(p.window.h, r, p.in_h), w(p.window.w, s, p.in_w);
        if constexpr (kMax) {
          if (x[i] == y[out] && !is_taken(p, image, h, w, at.row, at.column, y[out])) sum += dy[out];
        } else {
          sum += dy[out] / static_cast<T>(h.size() * w.size());
        }
      }
    dx[i] = sum;
  }
}

template <class T, bool kMax>
PreparedKernel forward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = prepared_pooling(c, c.inputs[0].shape),
                n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n != 0)
      cuda::launch(forward_kernel<T, kMax>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, p, a.in<T>(0),
                   a.out<T>(0), n);
  };
  return kernel;
}

template <class T, bool kMax>
PreparedKernel backward(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  const int dy = kMax ? 2 : 1;
  if (c.inputs[static_cast<std::size_t>(dy)].shape.elements() != p.images * p.out_image())
    c.fail("the output's gradient has shape " + c.inputs[static_cast<std::size_t>(dy)].shape.to_string() +
           ", images of shape " + c.outputs[0].shape.to_string() + " do not give it");
  PreparedKernel kernel;
  kernel.run = [p, dy, n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n != 0)
      cuda::launch(backward_kernel<T, kMax>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, p,
                   kMax ? a.in<T>(0) : nullptr, kMax ? a.in<T>(1) : nullptr, a.in<T>(dy), a.out<T>(0), n);
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

void register_pool2d_cuda(OpRegistry& registry) {
  add(registry, "MaxPool", forward<float, true>, forward<double, true>);
  add(registry, "AvgPool", forward<float, false>, forward<double, false>);
  add(registry, "MaxPoolGrad", backward<float, true>, backward<double, true>);
  add(registry, "AvgPoolGrad", backward<float, false>, backward<double, false>);
}

}  // namespace braid
