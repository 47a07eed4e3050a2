// The vector loops of the operations that reductions know. Included by the files that register reductions.
// Accumulators are arrays of 256 bytes, four registers of AVX-512 or eight of AVX2, with the same lanes and
// so the same bits on each.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/reduce.h"
#include "engine/ops/common/reduce_formulas.h"

namespace braid::reduce {

/// Reduces the longest prefix of x that is a multiple of kLanes into `result`, kLanes elements side by side;
/// returns its length.
template <class Op, int kLanes, class T>
BRAID_INLINE std::int64_t run_lanes(const T* x, std::int64_t n, T& result) {
  if (n < kLanes) return 0;
  T acc[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    acc[l] = x[l];
    Op::map(acc[l]);
  }
  std::int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) {
      T element = x[i + l];
      Op::map(element);
      Op::apply(acc[l], element);
    }
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) Op::apply(acc[l], acc[l + width]);
  Op::apply(result, acc[0]);
  return i;
}

/// The reduction of n contiguous elements.
template <class Op, class T>
BRAID_INLINE T run(const T* x, std::int64_t n) {
  T result = Op::template identity<T>();
  std::int64_t i = run_lanes<Op, 256 / sizeof(T)>(x, n, result);
  i += run_lanes<Op, 64 / sizeof(T)>(x + i, n - i, result);
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
