// MaxPool3D(x), MaxPool3DGrad(x, y, dy), AvgPool3D(x), AvgPool3DGrad(sizes, dy): windows over volumes, as
// pool2d.cc's over images: paddings never win and do not count, and a maximum passes over NaN. Of equal
// maxima of a window each gets its gradient, as in TensorFlow; with _first_maximum the first one in row-major
// order, as in PyTorch and for images. Attributes ksize, strides, padding, explicit_paddings, data_format
// (NDHWC, NCDHW). float32 and float64. Inner loops run over channels; NCDHW is seen as N * C volumes of one
// channel.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/pooling.h"

namespace braid {
namespace {

/// The window of one place of the output.
struct Spans {
  PoolSpan d, h, w;
  BRAID_INLINE Spans(const Pooling& p, std::int64_t place)
      : d(p.window.d, place / (p.out_h * p.out_w), p.in_d),
        h(p.window.h, place / p.out_w % p.out_h, p.in_h),
        w(p.window.w, place % p.out_w, p.in_w) {}
  BRAID_INLINE std::int64_t size() const { return d.size() * h.size() * w.size(); }
};

/// One place of one volume's output; `x` is the volume, `y` the place's channels.
template <class T, bool kMax>
BRAID_VECTOR_CLONES void pool_place(const Pooling& p, std::int64_t place, const T* x, T* y) {
  const std::int64_t n = p.channels;
  const Spans at(p, place);
  for (std::int64_t i = 0; i < n; ++i) y[i] = kMax ? std::numeric_limits<T>::lowest() : T{0};
  for (std::int64_t z = at.d.first; z < at.d.end; ++z)
    for (std::int64_t r = at.h.first; r < at.h.end; ++r)
      for (std::int64_t s = at.w.first; s < at.w.end; ++s) {
        const T* tap = x + ((z * p.in_h + r) * p.in_w + s) * n;
        if constexpr (kMax)
          for (std::int64_t i = 0; i < n; ++i) y[i] = tap[i] > y[i] ? tap[i] : y[i];
        else
          for (std::int64_t i = 0; i < n; ++i) y[i] += tap[i];
      }
  if constexpr (!kMax) {
    const T count = static_cast<T>(at.size());
    for (std::int64_t i = 0; i < n; ++i) y[i] /= count;
  }
}

/// Adds dy to dx where x reaches y, for one volume: everywhere in the window, or at its first such place.
template <class T>
void max_backward(const Pooling& p, bool first_only, const T* x, const T* y, const T* dy, T* dx) {
  const std::int64_t n = p.channels, places = p.out_d * p.out_h * p.out_w;
  const auto give = [&](const Spans& at, std::int64_t i) {
    for (std::int64_t z = at.d.first; z < at.d.end; ++z)
      for (std::int64_t r = at.h.first; r < at.h.end; ++r)
        for (std::int64_t s = at.w.first; s < at.w.end; ++s) {
          const std::int64_t element = ((z * p.in_h + r) * p.in_w + s) * n + i;
          if (x[element] != y[i]) continue;
          dx[element] += dy[i];
          if (first_only) return;
        }
  };
  for (std::int64_t place = 0; place < places; ++place, y += n, dy += n)
    for (std::int64_t i = 0; i < n; ++i) give(Spans(p, place), i);
}

/// Adds dy / count to all positions of each window of one volume.
template <class T>
BRAID_VECTOR_CLONES void average_backward(const Pooling& p, const T* dy, T* dx) {
  const std::int64_t n = p.channels, places = p.out_d * p.out_h * p.out_w;
  for (std::int64_t place = 0; place < places; ++place, dy += n) {
    const Spans at(p, place);
    const T count = static_cast<T>(at.size());
    for (std::int64_t z = at.d.first; z < at.d.end; ++z)
      for (std::int64_t r = at.h.first; r < at.h.end; ++r)
        for (std::int64_t s = at.w.first; s < at.w.end; ++s) {
          T* tap = dx + ((z * p.in_h + r) * p.in_w + s) * n;
          for (std::int64_t i = 0; i < n; ++i) tap[i] += dy[i] / count;
        }
  }
}

void infer_forward(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 5);
  const Shape in = c.shape(0).has_rank() ? c.shape(0) : Shape{-1, -1, -1, -1, -1};
  c.output(c.dtype(0), pooled_shape(make_pooling(c.node(), in, [&c](const std::string& m) { c.fail(m); })));
}

template <bool kMax>
PreparedKernel prepare_forward(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.inputs[0].shape);
  const std::int64_t places = p.out_d * p.out_h * p.out_w;
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, p.images * places, row_grain(p.channels * p.taps()),
                           [p, places](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t i = begin; i < end; ++i)
                               pool_place<T, kMax>(p, i % places, a.in<T>(0) + i / places * p.in_image(),
                                                   a.out<T>(0) + i * p.channels);
                           });
  });
}

void infer_max_grad(InferContext& c) { infer_max_pool_grad(c, 5); }

PreparedKernel prepare_max_grad(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.inputs[0].shape);
  const bool first_only = c.attr<bool>("_first_maximum", false);
  return with_float("MaxPool3DGrad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, p.images, row_grain(2 * p.out_image() * p.taps()),
                           [p, first_only](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             std::fill(a.out<T>(0) + begin * p.in_image(), a.out<T>(0) + end * p.in_image(),
                                       T{});
                             for (std::int64_t image = begin; image < end; ++image) {
                               const std::int64_t in = image * p.in_image(), out = image * p.out_image();
                               max_backward(p, first_only, a.in<T>(0) + in, a.in<T>(1) + out,
                                            a.in<T>(2) + out, a.out<T>(0) + in);
                             }
                           });
  });
}

void infer_average_grad(InferContext& c) { infer_average_pool_grad(c, 5); }

PreparedKernel prepare_average_grad(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  if (c.inputs[1].shape.elements() != p.images * p.out_image())
    c.fail(fmt::format("the output's gradient has shape {}, volumes of shape {} do not give it",
                       c.inputs[1].shape.to_string(), c.outputs[0].shape.to_string()));
  return with_float("AvgPool3DGrad", c.inputs[1].dtype, [&]<class T>() {
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
  c.set_grad(0, c.op("MaxPool3DGrad", {c.input(0), c.output(), c.grad()}, c.node().attrs));
}

void average_gradient(GradContext& c) {
  const ValueRef sizes = c.op("Shape", {c.input(0)}, {{"out_type", DType::Int32}});
  c.set_grad(0, c.op("AvgPool3DGrad", {sizes, c.grad()}, c.node().attrs));
}

OpDef pooling(const char* name, int inputs, void (*infer)(InferContext&),
              PreparedKernel (*cpu)(const PrepareContext&)) {
  return {.name = name,
          .traits = computes(),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .infer = infer,
          .cost = pool_cost,
          .cpu = cpu};
}

}  // namespace

void register_pool3d(OpRegistry& registry) {
  OpDef max = pooling("MaxPool3D", 1, infer_forward, prepare_forward<true>);
  max.gradient = max_gradient;
  registry.add(std::move(max));
  OpDef average = pooling("AvgPool3D", 1, infer_forward, prepare_forward<false>);
  average.gradient = average_gradient;
  registry.add(std::move(average));
  OpDef max_grad = pooling("MaxPool3DGrad", 3, infer_max_grad, prepare_max_grad);
  max_grad.no_gradient_reason = "second derivatives of max pooling are not supported";
  registry.add(std::move(max_grad));
  OpDef average_grad = pooling("AvgPool3DGrad", 2, infer_average_grad, prepare_average_grad);
  average_grad.gradient = [](GradContext& c) {
    c.set_grad(1, c.op("AvgPool3D", {c.grad()}, c.node().attrs));
  };
  average_grad.shape_values = {0};
  registry.add(std::move(average_grad));
}

}  // namespace braid
