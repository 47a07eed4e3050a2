// Formulas of single elementwise ops, and orders of elements, that CPU and CUDA kernels share.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/vector_math.h"

namespace braid::formula {

/// Cast: as C++ converts; a float beyond an integer's range becomes the nearest value of it, NaN 0.
template <class To, class From>
BRAID_INLINE To convert(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    // The upper bound is a power of two, so it is exact in From; the largest To itself may not be.
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From kBeyond = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * static_cast<From>(2);
    if (x != x) return 0;
    if (x < kLow) return std::numeric_limits<To>::min();
    if (x >= kBeyond) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

/// ClipByValue: where low > high, low. NaN goes through.
template <class T>
BRAID_INLINE T clipped(T x, T low, T high) {
  const T lowered = x > high ? high : x;
  return lowered < low ? low : lowered;
}

/// braid.SigmoidCrossEntropy of logit x and label z.
template <class T>
BRAID_INLINE T sigmoid_cross_entropy(T x, T z) {
  const T positive = x < T(0) ? T(0) : x;
  return positive - x * z + vec::log1p(vec::exp(-std::abs(x)));
}

/// Its gradient by the logit, times `dy`.
template <class T>
BRAID_INLINE T sigmoid_cross_entropy_grad(T x, T z, T dy) {
  return dy * (vec::sigmoid(x) - z);
}

/// ArgMax, ArgMin: does `candidate` beat `best`, which comes before it? A NaN beats nothing, and all beat it.
template <bool kMax, class T>
BRAID_INLINE bool beats(T candidate, T best) {
  const bool beyond = kMax ? candidate > best : candidate < best;
  return beyond | ((best != best) & (candidate == candidate));
}

/// TopK: is element u at index a before element v at index b? Larger first, NaN before all, ties by index.
template <class T, class I>
BRAID_INLINE bool before(T u, I a, T v, I b) {
  if (u > v) return true;
  if (u < v) return false;
  const bool nan_u = u != u, nan_v = v != v;
  return nan_u != nan_v ? nan_u : a < b;
}

}  // namespace braid::formula
