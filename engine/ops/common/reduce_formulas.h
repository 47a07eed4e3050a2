// The operations that reductions know. One definition for the CPU's loops (reduce_loops.h) and for CUDA
// (cuda/reduce.cuh).
#pragma once

#include <limits>

#include "engine/ops/common/kernel_util.h"

namespace braid::reduce {

// `apply` puts b into a; `map` is what happens to an element on its way in.
struct Sum {
  template <class T>
  using Compute = wrapping_t<T>;
  template <class T>
  BRAID_INLINE static constexpr T identity() {
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
  using Compute = wrapping_t<T>;
  template <class T>
  BRAID_INLINE static constexpr T identity() {
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
  BRAID_INLINE static constexpr T identity() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    const V larger = a > b ? a : b;
    a = a == a ? larger : a;
  }
  template <class V>
  BRAID_INLINE static void map(V&) {}
  using Combine = Max;
};
struct Min {
  template <class T>
  using Compute = T;
  template <class T>
  BRAID_INLINE static constexpr T identity() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
  template <class V>
  BRAID_INLINE static void apply(V& a, const V& b) {
    const V smaller = a < b ? a : b;
    a = a == a ? smaller : a;
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
  BRAID_INLINE static constexpr T identity() {
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
  BRAID_INLINE static constexpr T identity() {
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

}  // namespace braid::reduce
