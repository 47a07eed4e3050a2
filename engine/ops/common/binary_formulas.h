// The formulas of elementwise ops of two inputs: `Op::apply(a, b)`. One definition for the CPU's loops
// (binary.cc) and CUDA's kernels (binary.cu).
#pragma once

#include <cmath>
#include <type_traits>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/vector_math.h"

namespace braid::binary {

// Kernels of CUDA look for what is refused before they call a formula.
#ifdef __CUDACC__
BRAID_INLINE void throw_zero_division() {}
BRAID_INLINE void throw_negative_power() {}
#else
[[noreturn]] inline void throw_zero_division() { throw InvalidArgument("integer division by zero"); }
[[noreturn]] inline void throw_negative_power() {
  throw InvalidArgument("integers to negative integer powers are not allowed");
}
#endif

#define BRAID_BINARY(name, expression)          \
  struct name {                                 \
    template <class T>                          \
    BRAID_INLINE static T apply(T a, T b) {     \
      using W [[maybe_unused]] = wrapping_t<T>; \
      return static_cast<T>(expression);        \
    }                                           \
  };

/// Towards zero.
template <class T>
BRAID_INLINE T integer_quotient(T a, T b) {
  if (b == 0) throw_zero_division();
  if (b == -1) return static_cast<T>(0 - static_cast<wrapping_t<T>>(a));  // the processor traps on min / -1
  return a / b;
}

template <class T>
BRAID_INLINE T floor_quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const T q = integer_quotient(a, b);
    return b != -1 && a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
  } else {
    return std::floor(a / b);
  }
}

template <class T>
BRAID_INLINE T floor_remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) throw_zero_division();
    if (b == -1) return 0;
    const T r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  } else {
    const T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
}

/// With the sign of a.
template <class T>
BRAID_INLINE T truncated_remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) throw_zero_division();
    return b == -1 ? 0 : a % b;
  } else {
    return std::fmod(a, b);
  }
}

template <class T>
BRAID_INLINE T power(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b < 0) throw_negative_power();
    wrapping_t<T> result = 1, base = static_cast<wrapping_t<T>>(a);
    for (; b != 0; b >>= 1, base *= base)
      if (b & 1) result *= base;
    return static_cast<T>(result);
  } else {
    return std::pow(a, b);
  }
}

template <class T>
BRAID_INLINE T quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return integer_quotient(a, b);
  else
    return a / b;
}

/// Towards zero.
template <class T>
BRAID_INLINE T truncated_quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return integer_quotient(a, b);
  else
    return std::trunc(a / b);
}

/// Distances beyond the type's width shift everything out, negative ones nothing.
template <bool kLeft, class T>
BRAID_INLINE T shifted(T a, T b) {
  constexpr T kLast = sizeof(T) * 8 - 1;
  const T distance = b < 0 ? T(0) : b > kLast ? kLast : b;
  return kLeft ? static_cast<T>(static_cast<wrapping_t<T>>(a) << distance) : static_cast<T>(a >> distance);
}

BRAID_BINARY(Add, W(a) + W(b))
BRAID_BINARY(Sub, W(a) - W(b))
BRAID_BINARY(Mul, W(a) * W(b))
BRAID_BINARY(Div, quotient(a, b))
BRAID_BINARY(FloorDiv, floor_quotient(a, b))
BRAID_BINARY(FloorMod, floor_remainder(a, b))
BRAID_BINARY(Maximum, a > b || a != a ? a : b)
BRAID_BINARY(Minimum, a < b || a != a ? a : b)
BRAID_BINARY(Pow, power(a, b))
BRAID_BINARY(SquaredDifference, (W(a) - W(b)) * (W(a) - W(b)))
BRAID_BINARY(DivNoNan, b == T(0) ? T(0) : a / b)
BRAID_BINARY(MulNoNan, b == T(0) ? T(0) : a * b)
BRAID_BINARY(TruncateDiv, truncated_quotient(a, b))
BRAID_BINARY(TruncateMod, truncated_remainder(a, b))
BRAID_BINARY(Xdivy, a == T(0) ? T(0) : a / b)
BRAID_BINARY(Xlogy, a == T(0) ? T(0) : a * vec::log(b))
BRAID_BINARY(Xlog1py, a == T(0) ? T(0) : a * vec::log1p(b))
BRAID_BINARY(Atan2, std::atan2(a, b))
BRAID_BINARY(BitwiseAnd, a& b)
BRAID_BINARY(BitwiseOr, a | b)
BRAID_BINARY(BitwiseXor, a ^ b)
BRAID_BINARY(LeftShift, (shifted<true>(a, b)))
BRAID_BINARY(RightShift, (shifted<false>(a, b)))
#undef BRAID_BINARY

}  // namespace braid::binary
