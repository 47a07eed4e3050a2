// LRN(x [..., c]): local response normalisation, y[j] = x[j] / (bias + alpha * s[j])^beta, where s[j] is the
// sum of the squares of the channels from j - depth_radius to j + depth_radius. LRNGrad(dy, x, y) is its
// gradient: dx[k] = dy[k] n[k]^-beta - 2 alpha beta x[k] * (the sum of dy[j] y[j] / n[j] over those j), n
// being what is in brackets.
#include <algorithm>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

struct Settings {
  std::int64_t radius, channels;
  double bias, alpha, beta;

  explicit Settings(const PrepareContext& c)
      : radius(c.attr("depth_radius", std::int64_t{5})),
        channels(c.outputs[0].shape[3]),
        bias(c.attr("bias", 1.0)),
        alpha(c.attr("alpha", 1.0)),
        beta(c.attr("beta", 0.5)) {}

  /// The sum of f(k) over the channels beside j.
  template <class T, class F>
  T around(std::int64_t j, F f) const {
    T sum{};
    const std::int64_t end = std::min(j + radius + 1, channels);
    for (std::int64_t k = std::max<std::int64_t>(j - radius, 0); k < end; ++k) sum += f(k);
    return sum;
  }
  /// What x[j] is divided by, before the power.
  template <class T>
  T norm(const T* x, std::int64_t j) const {
    return static_cast<T>(bias) +
           static_cast<T>(alpha) * around<T>(j, [x](std::int64_t k) { return x[k] * x[k]; });
  }
};

void check(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 4);
  if (c.attr("depth_radius", std::int64_t{5}) < 0) c.fail("attribute depth_radius must not be negative");
}

void infer(InferContext& c) {
  check(c);
  infer_same_as_first(c);
}

void infer_grad(InferContext& c) {
  check(c);
  infer_same_shapes(c);
}

std::int64_t pixels(const PrepareContext& c) {
  const Shape& shape = c.outputs[0].shape;
  return shape[0] * shape[1] * shape[2];
}

PreparedKernel prepare(const PrepareContext& c) {
  const Settings s(c);
  return with_float("LRN", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, pixels(c), row_grain(s.channels * (2 * s.radius + 20)),
                           [s](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t p = begin; p < end; ++p) {
                               const T* x = a.in<T>(0) + p * s.channels;
                               T* y = a.out<T>(0) + p * s.channels;
                               for (std::int64_t j = 0; j < s.channels; ++j)
                                 y[j] = x[j] * std::pow(s.norm(x, j), static_cast<T>(-s.beta));
                             }
                           });
  });
}

/// Scratch holds n, and dy y / n, of every element.
PreparedKernel prepare_grad(const PrepareContext& c) {
  const Settings s(c);
  const std::int64_t count = pixels(c), elements = c.outputs[0].shape.elements();
  return with_float("LRNGrad", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel = parallel_kernel(
        c, count, row_grain(s.channels * (4 * s.radius + 40)),
        [s, elements](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          for (std::int64_t p = begin; p < end; ++p) {
            const std::int64_t at = p * s.channels;
            const T *dy = a.in<T>(0) + at, *x = a.in<T>(1) + at, *y = a.in<T>(2) + at;
            T *dx = a.out<T>(0) + at, *norm = static_cast<T*>(a.scratch) + at, *share = norm + elements;
            for (std::int64_t j = 0; j < s.channels; ++j) {
              norm[j] = s.norm(x, j);
              share[j] = dy[j] * y[j] / norm[j];
            }
            const T factor = static_cast<T>(-2 * s.alpha * s.beta);
            for (std::int64_t k = 0; k < s.channels; ++k)
              dx[k] = dy[k] * std::pow(norm[k], static_cast<T>(-s.beta)) +
                      factor * x[k] * s.template around<T>(k, [share](std::int64_t j) { return share[j]; });
          }
        });
    kernel.scratch_bytes = 2 * static_cast<std::size_t>(elements) * sizeof(T);
    return kernel;
  });
}

}  // namespace

void register_lrn(OpRegistry& registry) {
  registry.add({.name = "LRN",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("LRNGrad", {c.grad(), c.input(0), c.output()}, c.node().attrs));
                    },
                .cost = cost_per_output(40),
                .cpu = prepare});
  registry.add({.name = "LRNGrad",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_grad,
                .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                .cost = cost_per_output(60),
                .cpu = prepare_grad});
}

}  // namespace braid
