// MaxPool(x), MaxPoolGrad(x, y, dy), AvgPool(x), AvgPoolGrad(sizes, dy): windows over images, attributes
// ksize, strides, padding, explicit_paddings, data_format (engine/ops/common/window.h). Paddings never win a
// maximum and do not count in a mean. As in TensorFlow, a maximum passes over NaN and is no less than the
// lowest finite number. A maximum's gradient goes to the first position that holds it, in
// row-major order. float32 and float64. Inner loops run over channels; NCHW is seen as N * C images of one
// channel.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/pooling.h"

namespace braid {
namespace {

template <class T>
BRAID_INLINE void raise_to(T* y, const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}

template <class T>
BRAID_INLINE void add_to(T* y, const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

/// Windows of 2 by 2 that lie side by side inside the input: the common case, whose loops over channels hold
/// the whole window in registers.
bool is_quarter(const Pooling& p) {
  const auto halves = [](const WindowAxis& a) { return a.kernel == 2 && a.stride == 2 && a.pad_before == 0; };
  return halves(p.window.h) && halves(p.window.w) && p.in_h == 2 * p.out_h && p.in_w == 2 * p.out_w;
}

/// One row of one image's output where is_quarter(p). `x` is the image's first row under it.
template <class T, bool kMax>
BRAID_VECTOR_CLONES void quarter_row(const Pooling& p, const T* __restrict x, T* __restrict y) {
  const std::int64_t n = p.channels, below = p.in_w * n;
  for (std::int64_t column = 0; column < p.out_w; ++column, x += 2 * n, y += n)
    for (std::int64_t i = 0; i < n; ++i) {
      const T a = x[i], b = x[n + i], c = x[below + i], d = x[below + n + i];
      if constexpr (kMax) {
        T largest = a > std::numeric_limits<T>::lowest() ? a : std::numeric_limits<T>::lowest();
        largest = b > largest ? b : largest;
        largest = c > largest ? c : largest;
        y[i] = d > largest ? d : largest;
      } else {
        y[i] = (((a + b) + c) + d) / T{4};
      }
    }
}

/// One row of the gradient of maxima where is_quarter(p); writes all of the two rows of dx.
template <class T>
BRAID_VECTOR_CLONES void quarter_max_backward(const Pooling& p, const T* __restrict x, const T* __restrict y,
                                              const T* __restrict dy, T* __restrict dx) {
  const std::int64_t n = p.channels, below = p.in_w * n;
  for (std::int64_t column = 0; column < p.out_w; ++column, x += 2 * n, dx += 2 * n, y += n, dy += n)
    for (std::int64_t i = 0; i < n; ++i) {
      const T top = y[i], a = dy[i];
      dx[i] = x[i] == top ? a : T{0};
      const T b = x[i] == top ? T{0} : a;  // what has not found its place yet
      dx[n + i] = x[n + i] == top ? b : T{0};
      const T c = x[n + i] == top ? T{0} : b;
      dx[below + i] = x[below + i] == top ? c : T{0};
      const T d = x[below + i] == top ? T{0} : c;
      dx[below + n + i] = x[below + n + i] == top ? d : T{0};
    }
}

/// One row of one image's output. `x` is the image, `y` the row.
template <class T, bool kMax>
BRAID_VECTOR_CLONES void pool_row(const Pooling& p, std::int64_t row, const T* x, T* y) {
  const std::int64_t n = p.channels;
  const PoolSpan h(p.window.h, row, p.in_h);
  for (std::int64_t column = 0; column < p.out_w; ++column, y += n) {
    const PoolSpan w(p.window.w, column, p.in_w);
    for (std::int64_t i = 0; i < n; ++i) y[i] = kMax ? std::numeric_limits<T>::lowest() : T{0};
    for (std::int64_t r = h.first; r < h.end; ++r)
      for (std::int64_t s = w.first; s < w.end; ++s) {
        const T* tap = x + (r * p.in_w + s) * n;
        if constexpr (kMax)
          raise_to(y, tap, n);
        else
          add_to(y, tap, n);
      }
    if constexpr (!kMax) {
      const T count = static_cast<T>(h.size() * w.size());
      for (std::int64_t i = 0; i < n; ++i) y[i] /= count;
    }
  }
}

constexpr std::int64_t kChannels = 256;  // channels that a search for maxima keeps track of at a time

/// Adds dy to dx where x first reaches y, for one image and n <= kChannels channels of it.
template <class T>
BRAID_VECTOR_CLONES void max_backward(const Pooling& p, std::int64_t n, const T* x, const T* y, const T* dy,
                                      T* dx) {
  std::array<T, kChannels> left;  // the gradient that has not found its place
  for (std::int64_t row = 0; row < p.out_h; ++row) {
    const PoolSpan h(p.window.h, row, p.in_h);
    for (std::int64_t column = 0; column < p.out_w; ++column) {
      const PoolSpan w(p.window.w, column, p.in_w);
      const std::int64_t out = (row * p.out_w + column) * p.channels;
      for (std::int64_t i = 0; i < n; ++i) left[static_cast<std::size_t>(i)] = dy[out + i];
      for (std::int64_t r = h.first; r < h.end; ++r)
        for (std::int64_t s = w.first; s < w.end; ++s) {
          const std::int64_t in = (r * p.in_w + s) * p.channels;
          for (std::int64_t i = 0; i < n; ++i) {
            const T rest = left[static_cast<std::size_t>(i)];
            const T here = x[in + i] == y[out + i] ? rest : T{0};
            dx[in + i] += here;
            left[static_cast<std::size_t>(i)] = x[in + i] == y[out + i] ? T{0} : rest;
          }
        }
    }
  }
}

/// Adds dy / count to all positions of each window of one image.
template <class T>
BRAID_VECTOR_CLONES void average_backward(const Pooling& p, const T* dy, T* dx) {
  const std::int64_t n = p.channels;
  for (std::int64_t row = 0; row < p.out_h; ++row) {
    const PoolSpan h(p.window.h, row, p.in_h);
    for (std::int64_t column = 0; column < p.out_w; ++column, dy += n) {
      const PoolSpan w(p.window.w, column, p.in_w);
      const T count = static_cast<T>(h.size() * w.size());
      for (std::int64_t r = h.first; r < h.end; ++r)
        for (std::int64_t s = w.first; s < w.end; ++s) {
          T* tap = dx + (r * p.in_w + s) * n;
          for (std::int64_t i = 0; i < n; ++i) tap[i] += dy[i] / count;
        }
    }
  }
}

void infer_forward(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 4);
  const Shape in = c.shape(0).has_rank() ? c.shape(0) : Shape{-1, -1, -1, -1};
  c.output(c.dtype(0), pooled_shape(make_pooling(c.node(), in, [&c](const std::string& m) { c.fail(m); })));
}

template <bool kMax>
PreparedKernel prepare_forward(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.inputs[0].shape);
  const std::int64_t row = p.out_w * p.channels;
  const bool quarter = is_quarter(p);
  return with_float("MaxPool", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, p.images * p.out_h, row_grain(row * p.taps()),
                           [p, row, quarter](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t r = begin; r < end; ++r)
                               if (quarter)
                                 quarter_row<T, kMax>(p, a.in<T>(0) + 4 * r * row, a.out<T>(0) + r * row);
                               else
                                 pool_row<T, kMax>(p, r % p.out_h, a.in<T>(0) + r / p.out_h * p.in_image(),
                                                   a.out<T>(0) + r * row);
                           });
  });
}

void infer_max_grad(InferContext& c) { infer_max_pool_grad(c, 4); }

template <class T>
PreparedKernel quarter_max_kernel(const PrepareContext& c, const Pooling& p) {
  const std::int64_t row = p.out_w * p.channels;
  return parallel_kernel(c, p.images * p.out_h, row_grain(row * p.taps()),
                         [p, row](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           for (std::int64_t r = begin; r < end; ++r)
                             quarter_max_backward(p, a.in<T>(0) + 4 * r * row, a.in<T>(1) + r * row,
                                                  a.in<T>(2) + r * row, a.out<T>(0) + 4 * r * row);
                         });
}

PreparedKernel prepare_max_grad(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.inputs[0].shape);
  return with_float("MaxPoolGrad", c.inputs[0].dtype, [&]<class T>() {
    if (is_quarter(p)) return quarter_max_kernel<T>(c, p);
    return parallel_kernel(
        c, p.images, row_grain(2 * p.out_image() * p.taps()),
        [p](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          std::fill(a.out<T>(0) + begin * p.in_image(), a.out<T>(0) + end * p.in_image(), T{});
          for (std::int64_t image = begin; image < end; ++image)
            for (std::int64_t first = 0; first < p.channels; first += kChannels) {
              const std::int64_t in = image * p.in_image() + first, out = image * p.out_image() + first;
              max_backward(p, std::min(kChannels, p.channels - first), a.in<T>(0) + in, a.in<T>(1) + out,
                           a.in<T>(2) + out, a.out<T>(0) + in);
            }
        });
  });
}

void infer_average_grad(InferContext& c) { infer_average_pool_grad(c, 4); }

PreparedKernel prepare_average_grad(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  if (c.inputs[1].shape.elements() != p.images * p.out_image())
    c.fail(fmt::format("the output's gradient has shape {}, images of shape {} do not give it",
                       c.inputs[1].shape.to_string(), c.outputs[0].shape.to_string()));
  return with_float("AvgPoolGrad", c.inputs[1].dtype, [&]<class T>() {
    return parallel_kernel(
        c, p.images, row_grain(p.out_image() * p.taps()),
        [p](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          std::fill(a.out<T>(0) + begin * p.in_image(), a.out<T>(0) + end * p.in_image(), T{});
          for (std::int64_t image = begin; image < end; ++image)
            average_backward(p, a.in<T>(1) + image * p.out_image(), a.out<T>(0) + image * p.in_image());
        });
  });
}

void max_gradient(GradContext& c) {
  c.set_grad(0, c.op("MaxPoolGrad", {c.input(0), c.output(), c.grad()}, c.node().attrs));
}

void average_gradient(GradContext& c) {
  const ValueRef sizes = c.op("Shape", {c.input(0)}, {{"out_type", DType::Int32}});
  c.set_grad(0, c.op("AvgPoolGrad", {sizes, c.grad()}, c.node().attrs));
}

}  // namespace

void register_pool2d(OpRegistry& registry) {
  OpDef max{.name = "MaxPool",
            .traits = computes().computes_in(integers_as_doubles),
            .min_inputs = 1,
            .max_inputs = 1,
            .infer = infer_forward,
            .gradient = max_gradient,
            .cost = pool_cost,
            .cpu = prepare_forward<true>};
  OpDef average = max;
  average.name = "AvgPool";
  average.traits = computes();
  average.gradient = average_gradient;
  average.cpu = prepare_forward<false>;
  // MaxPool stays float32: its gradient finds by their values which elements were taken, and would find none
  // where the output is rounded and the images are not. braid.MaxPoolPlaces takes halves.
  registry.add(std::move(max));
  registry.add(takes_halves(std::move(average), {.kind = HalfKind::Follower, .inputs = {0}, .outputs = {0}}));
  registry.add({.name = "MaxPoolGrad",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_max_grad,
                .no_gradient_reason = "second derivatives of max pooling are not supported",
                .cost = pool_cost,
                .cpu = prepare_max_grad});
  registry.add(takes_halves(
      {.name = "AvgPoolGrad",
       .traits = computes(),
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_average_grad,
       .gradient = [](GradContext& c) { c.set_grad(1, c.op("AvgPool", {c.grad()}, c.node().attrs)); },
       .cost = pool_cost,
       .cpu = prepare_average_grad,
       .shape_values = {0}},
      {.kind = HalfKind::Follower, .inputs = {1}, .outputs = {0}}));
}

}  // namespace braid
