// What attention on the CPU, ragged and dense, is made of: tiles of queries and keys of one head, packed side
// by side and filled with zeros, and loops over them. All sums are in the type of the values, in an order
// that follows from lengths alone. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "engine/ops/common/vector_math.h"

namespace braid::attention {

inline constexpr std::int64_t kQueries = 96, kKeys = 48;  // of a tile
inline constexpr std::int64_t kRowBlock = 6;              // rows of a product in registers
inline constexpr std::int64_t kLanes = 16;                // numbers that products have columns of

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// c[i, j] += sum over p < k of a[i * a_row + p * a_step] * b[p * b_row + j].
/// REQUIRES: m is a multiple of kRowBlock, n one of kLanes.
template <class T>
BRAID_VECTOR_CLONES void add_product(std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                                     std::int64_t a_row, std::int64_t a_step, const T* b, std::int64_t b_row,
                                     T* c, std::int64_t c_row) {
  typedef T V __attribute__((vector_size(64)));
  constexpr std::int64_t lanes = 64 / sizeof(T);
  for (std::int64_t j = 0; j < n; j += lanes) {
    for (std::int64_t i = 0; i < m; i += kRowBlock) {
      V acc[kRowBlock];
      for (int r = 0; r < kRowBlock; ++r) std::memcpy(&acc[r], c + (i + r) * c_row + j, sizeof(V));
      const T* from = a + i * a_row;
      for (std::int64_t p = 0; p < k; ++p) {
        V row;
        std::memcpy(&row, b + p * b_row + j, sizeof(V));
        for (int r = 0; r < kRowBlock; ++r) acc[r] += from[r * a_row + p * a_step] * row;
      }
      for (int r = 0; r < kRowBlock; ++r) std::memcpy(c + (i + r) * c_row + j, &acc[r], sizeof(V));
    }
  }
}

/// `count` rows of `width`, times `by`, as rows of `row` numbers; zeros up to `rows` rows.
template <class T>
BRAID_VECTOR_CLONES void pack(const T* from, std::int64_t step, std::int64_t count, std::int64_t width, T by,
                              T* to, std::int64_t rows, std::int64_t row) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < width; ++j) to[i * row + j] = by * from[i * step + j];
    for (std::int64_t j = width; j < row; ++j) to[i * row + j] = 0;
  }
  std::fill(to + count * row, to + rows * row, T(0));
}

/// The same transposed: `width` rows of kKeys numbers.
template <class T>
void pack_transposed(const T* from, std::int64_t step, std::int64_t count, std::int64_t width, T* to) {
  for (std::int64_t j = 0; j < width; ++j) {
    T* row = to + j * kKeys;
    for (std::int64_t i = 0; i < count; ++i) row[i] = from[i * step + j];
    std::fill(row + count, row + kKeys, T(0));
  }
}

/// What a query of a tile sees of the tile's keys: [from, to), and `self`, unless that is -1.
struct TileRow {
  std::int64_t from = 0, to = 0, self = -1;
  bool empty() const { return from >= to && self < 0; }
};

/// Other numbers of the row's `columns` become `other`.
template <class T>
void keep(const TileRow& row, T* x, std::int64_t columns, T other) {
  const T self = row.self >= 0 ? x[row.self] : T(0);
  std::fill(x, x + std::min(row.from, columns), other);
  std::fill(x + std::min(std::max(row.from, row.to), columns), x + columns, other);
  if (row.self >= 0) x[row.self] = self;
}

// Rows of scores: `columns` is a multiple of kLanes. Sums and maxima are of lanes first, so that they are
// vectors, then of the lanes in their order.

/// s sigmoid(s) by.
template <class T>
BRAID_VECTOR_CLONES void silu(T* s, std::int64_t columns, T by) {
  for (std::int64_t j = 0; j < columns; ++j) s[j] = s[j] / (T(1) + vec::exp(-s[j])) * by;
}

/// s becomes silu(s) by, and d, the gradient by that, the gradient by s.
template <class T>
BRAID_VECTOR_CLONES void silu_gradient(T* s, T* d, std::int64_t columns, T by) {
  for (std::int64_t j = 0; j < columns; ++j) {
    const T sigmoid = T(1) / (T(1) + vec::exp(-s[j]));
    d[j] = d[j] * by * sigmoid * (T(1) + s[j] * (T(1) - sigmoid));
    s[j] = s[j] * sigmoid * by;
  }
}

template <class T>
BRAID_VECTOR_CLONES T max_of(const T* s, std::int64_t columns) {
  T lanes[kLanes];
  for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = s[l];
  for (std::int64_t j = kLanes; j < columns; j += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = s[j + l] > lanes[l] ? s[j + l] : lanes[l];
  T max = lanes[0];
  for (std::int64_t l = 1; l < kLanes; ++l) max = std::max(max, lanes[l]);
  return max;
}

/// s becomes exp(s - max); gives their sum.
template <class T>
BRAID_VECTOR_CLONES T exp_from(T* s, std::int64_t columns, T max) {
  T lanes[kLanes] = {};
  for (std::int64_t j = 0; j < columns; j += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) {
      s[j + l] = vec::exp(s[j + l] - max);
      lanes[l] += s[j + l];
    }
  T sum = 0;
  for (std::int64_t l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

/// The sum of x y.
template <class T>
BRAID_VECTOR_CLONES T dot(const T* x, const T* y, std::int64_t width) {
  T lanes[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += x[j + l] * y[j + l];
  T sum = 0;
  for (std::int64_t l = 0; l < kLanes; ++l) sum += lanes[l];
  for (; j < width; ++j) sum += x[j] * y[j];
  return sum;
}

/// s becomes p = exp(s - max - log_sum), and d p (d - dot).
template <class T>
BRAID_VECTOR_CLONES void softmax_gradient(T* s, T* d, std::int64_t columns, T max, T log_sum, T dot) {
  for (std::int64_t j = 0; j < columns; ++j) {
    s[j] = vec::exp((s[j] - max) - log_sum);
    d[j] = s[j] * (d[j] - dot);
  }
}

/// to[i, 0..width) += by * from[i, 0..width).
template <class T>
BRAID_VECTOR_CLONES void add_rows(const T* from, std::int64_t row, std::int64_t count, std::int64_t width,
                                  T by, T* to, std::int64_t step) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t j = 0; j < width; ++j) to[i * step + j] += by * from[i * row + j];
}

}  // namespace braid::attention
