// The row loops that softmax and its losses share: e = exp(x - max), the maximum and the sum of e for each
// row. Subtracting the maximum keeps every exponent <= 0, so nothing overflows. Works on a tile of rows at a
// time, which stays in the first-level cache between the passes; the exponentials of a tile are one vector
// loop however short its rows are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/vector_math.h"

namespace braid {

inline constexpr std::int64_t kSoftmaxTileRows = 64;

inline std::int64_t softmax_tile_rows(std::int64_t n) {
  return std::clamp<std::int64_t>(4096 / std::max<std::int64_t>(n, 1), 1, kSoftmaxTileRows);
}

/// x, e: [rows, n]; max, sum: [rows]. e may be x. REQUIRES: rows <= kSoftmaxTileRows, n >= 1.
template <class T>
BRAID_INLINE void exp_rows(const T* x, std::int64_t rows, std::int64_t n, T* e, T* max, T* sum) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T m = max[r] = reduce::run<reduce::Max, T>(x + r * n, n);
#pragma GCC ivdep  // e is x or does not overlap it
    for (std::int64_t j = 0; j < n; ++j) e[r * n + j] = x[r * n + j] - m;
  }
  for (std::int64_t i = 0; i < rows * n; ++i) e[i] = vec::exp(e[i]);
  for (std::int64_t r = 0; r < rows; ++r) sum[r] = reduce::run<reduce::Sum, T>(e + r * n, n);
}

/// Calls tile(first_row, rows) for the tiles of rows [begin, end).
template <class Tile>
void for_row_tiles(std::int64_t begin, std::int64_t end, std::int64_t n, Tile tile) {
  const std::int64_t step = softmax_tile_rows(n);
  for (std::int64_t row = begin; row < end; row += step) tile(row, std::min(step, end - row));
}

}  // namespace braid
