// Elementwise functions that need more than a formula: Digamma (the derivative of Lgamma), Erfinv and Ndtri
// (the quantile of the normal distribution). All are computed in float64. Outside of their domains, and
// Digamma at 0, -1, ..., they are NaN; Erfinv and Ndtri are infinite at the ends of theirs.
#include <cmath>
#include <limits>

#include "base/init.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr double kPi = 3.141592653589793, kTwoOverRootPi = 1.1283791670955126, kRootTwo = 1.4142135623730951;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// psi(x) = psi(1 - x) - pi / tan(pi x) below 0, psi(x) = psi(x + 1) - 1 / x up to 10, then the asymptotic
/// series.
double digamma(double x) {
  if (x <= 0) return std::floor(x) == x ? kNan : digamma(1 - x) - kPi / std::tan(kPi * x);
  double result = 0;
  for (; x < 10; ++x) result -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * 691.0 / 32760)))));
  return result + std::log(x) - 0.5 / x - series;
}

/// A step of Halley's method for a y whose erf is too large by `error`.
double improved(double y, double error) {
  const double step = error / (kTwoOverRootPi * std::exp(-y * y));
  return y - step / (1 + y * step);
}

/// The y >= 0 with erfc(y) = rest. REQUIRES: 0 < rest <= 1.
double erfc_inverse(double rest) {
  const double y = -normal_quantile(rest / 2) / kRootTwo;  // nine digits
  return improved(y, rest - std::erfc(y));
}

double erf_inverse(double x) {
  const double size = std::abs(x);
  if (!(size <= 1)) return kNan;
  if (size == 1) return std::copysign(kInfinity, x);
  if (size > 0.5) return std::copysign(erfc_inverse(1 - size), x);
  const double y = normal_quantile((1 + x) / 2) / kRootTwo;
  return improved(y, std::erf(y) - x);
}

double quantile_of_normal(double p) {
  if (!(p >= 0 && p <= 1)) return kNan;
  if (p == 0 || p == 1) return p == 0 ? -kInfinity : kInfinity;
  return p < 0.5 ? -kRootTwo * erfc_inverse(2 * p) : kRootTwo * erfc_inverse(2 * (1 - p));
}

void infer(InferContext& c) {
  require_floating(c, 0);
  infer_same_as_first(c);
}

template <double (*kFunction)(double)>
PreparedKernel prepare(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain / 64,
                           [](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t i = begin; i < end; ++i)
                               a.out<T>(0)[i] = static_cast<T>(kFunction(static_cast<double>(a.in<T>(0)[i])));
                           });
  });
}

/// dx = dy * scale * exp(y^2 * rate), y being the output.
void inverse_gradient(GradContext& c, double scale, double rate) {
  const ValueRef power = grad::mul(c, c.op("Square", {c.output()}), grad::scalar(c, rate));
  c.set_grad(0, grad::mul(c, c.grad(), grad::mul(c, c.op("Exp", {power}), grad::scalar(c, scale))));
}

}  // namespace

void register_special_functions(OpRegistry& registry) {
  const auto add = [&](const char* name, PrepareFn cpu, GradFn gradient, const char* reason) {
    registry.add({.name = name,
                  .traits = pointwise_without_formula("it is a series"),
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .infer = infer,
                  .gradient = std::move(gradient),
                  .no_gradient_reason = reason,
                  .cost = cost_per_output(100),
                  .cpu = std::move(cpu),
                  .in_place = {{0, 0}}});
  };
  add("Digamma", prepare<digamma>, {}, "its derivative, the trigamma function, is not supported");
  add(
      "Erfinv", prepare<erf_inverse>, [](GradContext& c) { inverse_gradient(c, 1 / kTwoOverRootPi, 1); }, "");
  add(
      "Ndtri", prepare<quantile_of_normal>,
      [](GradContext& c) { inverse_gradient(c, std::sqrt(2 * kPi), 0.5); }, "");
}

}  // namespace braid
