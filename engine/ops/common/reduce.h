// Reductions of a tensor along axes, for any operation that is associative in exact arithmetic. The order of
// operations, and so every bit, follows from the shapes alone:
//   * neighbouring axes that are reduced, or kept, together are joined; axes of size 1 are dropped;
//   * runs of at most kReduceChunk contiguous elements go through lanes of accumulators;
//   * kept inner axes go through whole rows at a time;
//   * what flows into one output is cut into parts with partial results in scratch, combined in order.
// Short parts also keep float32 sums close to the exact ones. Sum, mean, gradients of broadcasts and of
// biases all go through here.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

inline constexpr std::int64_t kReduceChunk = 32768;

/// The vector loops of one operation on one type; reduce_loops.h makes them.
template <class T>
struct ReduceLoops {
  T identity;
  /// y[r] = the reduction of row r: n contiguous elements at x + r * stride.
  void (*rows)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t n, T* y);
  /// acc[j] = acc[j] with x[r * stride + j] of every row, in order.
  void (*columns)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t n, T* acc);
  /// The same on partial results, where an operation maps elements first (a sum of squares adds its parts).
  void (*combine_rows)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t n, T* y);
  void (*combine_columns)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t n, T* acc);
};

/// A kernel that reduces input 0, of shape `shape`, along `axes` (sorted, distinct) into output 0 and divides
/// the result by `divisor` (1: not at all). T is the element type; bool is reduced as std::uint8_t.
template <class T>
PreparedKernel prepare_reduce(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                              const ReduceLoops<T>& loops, T divisor = T(1));

}  // namespace braid
