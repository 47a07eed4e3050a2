// The operations that reductions know, and their vector loops. Included by the files that register
// reductions. Vectors are the compiler's 64-byte vector type: one AVX-512 register, two of AVX2, four of the
// baseline, with the same lanes and so the same bits on each.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/reduce.h"

namespace braid::reduce {

/// Integer sums and products wrap: they are calculated unsigned.
template <class T, bool kIntegral = std::is_integral_v<T>>
struct WrappingOf {
  using type = T;
};
template <class T>
struct WrappingOf<T, true> {
  using type = std::make_unsigned_t<T>;
};

// `apply` takes scalars or vectors; `map` is what happens to an element on its way in.
struct Sum {
  template <class T>
  using Compute = typename WrappingOf<T>::type;
  template <class T>
  static constexpr T identity() {
    return T(0);
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    a = a + b;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = Sum;
};
struct Prod {
  template <class T>
  using Compute = typename WrappingOf<T>::type;
  template <class T>
  static constexpr T identity() {
    return T(1);
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    a = a * b;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = Prod;
};
struct SumOfSquares : Sum {
  template <class V>
  BRAID_INLINE static void map(V& a) {
    a = a * a;
  }
};
// NaN wins, as in TensorFlow.
struct Max {
  template <class T>
  using Compute = T;
  template <class T>
  static constexpr T identity() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    a = a != a ? a : a > b ? a : b;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = Max;
};
struct Min {
  template <class T>
  using Compute = T;
  template <class T>
  static constexpr T identity() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    a = a != a ? a : a < b ? a : b;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = Min;
};
// On bytes that are 0 or 1.
struct And {
  template <class T>
  using Compute = T;
  template <class T>
  static constexpr T identity() {
    return T(1);
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    a = a & b;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = And;
};
struct Or {
  template <class T>
  using Compute = T;
  template <class T>
  static constexpr T identity() {
    return T(0);
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    a = a | b;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = Or;
};

template <class Op, class T>
BRAID_INLINE T run(const T* x, std::int64_t n) {
  constexpr int kLanes = 64 / sizeof(T);
  typedef T V __attribute__((vector_size(64)));
  T result = Op::template identity<T>();
  std::int64_t i = 0;
  if (n >= 4 * kLanes) {
    V acc[4], v[4];
    std::memcpy(acc, x, sizeof acc);
    for (V& a : acc) Op::map(a);
    for (i = 4 * kLanes; i + 4 * kLanes <= n; i += 4 * kLanes) {
      std::memcpy(v, x + i, sizeof v);
      for (int k = 0; k < 4; ++k) {
        Op::map(v[k]);
        Op::apply(acc[k], v[k]);
      }
    }
    Op::apply(acc[0], acc[1]);
    Op::apply(acc[2], acc[3]);
    Op::apply(acc[0], acc[2]);
    for (int lane = 0; lane < kLanes; ++lane) Op::apply(result, static_cast<T>(acc[0][lane]));
  }
  for (; i < n; ++i) {
    T element = x[i];
    Op::map(element);
    Op::apply(result, element);
  }
  return result;
}

template <class Op, class T>
BRAID_VECTOR_CLONES void rows(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t n, T* y) {
  using C = typename Op::template Compute<T>;
  for (std::int64_t r = 0; r < rows; ++r)
    y[r] = static_cast<T>(run<Op, C>(reinterpret_cast<const C*>(x + r * stride), n));
}

template <class Op, class T>
BRAID_VECTOR_CLONES void columns(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t n, T* acc) {
  using C = typename Op::template Compute<T>;
  const C* in = reinterpret_cast<const C*>(x);
  C* out = reinterpret_cast<C*>(acc);
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4, in += 4 * stride) {
    const C *x0 = in, *x1 = in + stride, *x2 = in + 2 * stride, *x3 = in + 3 * stride;
#pragma GCC ivdep  // the accumulator overlaps no input
    for (std::int64_t j = 0; j < n; ++j) {
      C a = x0[j], b = x1[j], c = x2[j], d = x3[j];
      Op::map(a), Op::map(b), Op::map(c), Op::map(d);
      Op::apply(a, b);
      Op::apply(c, d);
      Op::apply(a, c);
      Op::apply(out[j], a);
    }
  }
  for (; r < rows; ++r, in += stride) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) {
      C a = in[j];
      Op::map(a);
      Op::apply(out[j], a);
    }
  }
}

template <class Op, class T>
ReduceLoops<T> loops_of() {
  using Combine = typename Op::Combine;
  return {Op::template identity<T>(), rows<Op, T>, columns<Op, T>, rows<Combine, T>, columns<Combine, T>};
}

}  // namespace braid::reduce
