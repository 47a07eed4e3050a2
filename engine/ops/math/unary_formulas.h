// The formulas of elementwise ops of one input: `Op::apply(x, alpha)`. One definition for the CPU's loops
// (unary.cc) and CUDA's kernels (unary.cu).
#pragma once

#include <cmath>
#include <limits>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/vector_math.h"

namespace braid::unary {

#define BRAID_UNARY(name, expression)              \
  struct name {                                    \
    template <class T>                             \
    BRAID_INLINE static auto apply(T x, T alpha) { \
      static_cast<void>(alpha);                    \
      return expression;                           \
    }                                              \
  };

constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluScaleAlpha = 1.7580993408473768599402175208123;

/// -x, which wraps for the smallest integer.
template <class T>
BRAID_INLINE T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<wrapping_t<T>>(x));
  else
    return -x;
}

/// x * x, which wraps for integers.
template <class T>
BRAID_INLINE T squared(T x) {
  const auto w = static_cast<wrapping_t<T>>(x);
  return static_cast<T>(w * w);
}

/// To even; integers are.
template <class T>
BRAID_INLINE T rounded(T x) {
  if constexpr (std::is_integral_v<T>)
    return x;
  else
    return std::rint(x);
}

/// log |gamma(x)|; the function of the C library that keeps no sign in a global variable.
#ifdef __CUDACC__
BRAID_INLINE float log_gamma(float x) { return ::lgammaf(x); }
BRAID_INLINE double log_gamma(double x) { return ::lgamma(x); }
#else
inline float log_gamma(float x) {
  int sign;
  return lgammaf_r(x, &sign);
}
inline double log_gamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
#endif

BRAID_UNARY(Neg, negated(x))
BRAID_UNARY(Abs, x < T(0) ? negated(x) : x + T(0))  // x + 0: -0 becomes 0
BRAID_UNARY(Sign, x > T(0) ? T(1) : x < T(0) ? T(-1) : x)
BRAID_UNARY(Exp, vec::exp(x))
BRAID_UNARY(Expm1, vec::expm1(x))
BRAID_UNARY(Log, vec::log(x))
BRAID_UNARY(Log1p, vec::log1p(x))
BRAID_UNARY(Sqrt, std::sqrt(x))
BRAID_UNARY(Rsqrt, T(1) / std::sqrt(x))
BRAID_UNARY(Square, squared(x))
BRAID_UNARY(Reciprocal, T(1) / x)
BRAID_UNARY(Sin, std::sin(x))
BRAID_UNARY(Cos, std::cos(x))
BRAID_UNARY(Tan, std::tan(x))
BRAID_UNARY(Asin, std::asin(x))
BRAID_UNARY(Acos, std::acos(x))
BRAID_UNARY(Atan, std::atan(x))
BRAID_UNARY(Sinh, std::sinh(x))
BRAID_UNARY(Cosh, std::cosh(x))
BRAID_UNARY(Asinh, std::asinh(x))
BRAID_UNARY(Acosh, std::acosh(x))
BRAID_UNARY(Atanh, std::atanh(x))
BRAID_UNARY(Tanh, vec::tanh(x))
BRAID_UNARY(Sigmoid, vec::sigmoid(x))
BRAID_UNARY(Relu, x < T(0) ? T(0) : x)
BRAID_UNARY(Relu6, x<T(0) ? T(0) : x> T(6) ? T(6) : x)
BRAID_UNARY(Elu, x < T(0) ? vec::expm1(x) : x)
BRAID_UNARY(Selu, x < T(0) ? T(kSeluScaleAlpha) * vec::expm1(x) : T(kSeluScale) * x)
BRAID_UNARY(LeakyRelu, x < T(0) ? alpha * x : x)
BRAID_UNARY(Softplus, (x < T(0) ? T(0) : x) + vec::log1p(vec::exp(-std::abs(x))))
BRAID_UNARY(Softsign, x / (T(1) + std::abs(x)))
BRAID_UNARY(Erf, vec::erf(x))
BRAID_UNARY(Erfc, std::erfc(x))
BRAID_UNARY(Lgamma, log_gamma(x))
BRAID_UNARY(Floor, std::floor(x))
BRAID_UNARY(Ceil, std::ceil(x))
BRAID_UNARY(Rint, std::rint(x))  // to even, the default rounding mode
BRAID_UNARY(Round, rounded(x))
BRAID_UNARY(IsNan, x != x)
BRAID_UNARY(IsInf, std::abs(x) > std::numeric_limits<T>::max())
BRAID_UNARY(IsFinite, std::abs(x) <= std::numeric_limits<T>::max())
BRAID_UNARY(LogicalNot, !x)
BRAID_UNARY(Invert, ~x)
#undef BRAID_UNARY

}  // namespace braid::unary
