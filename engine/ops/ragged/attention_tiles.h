// What ragged attention on the CPU is made of: tiles of queries and keys of one head, packed side by side and
// filled with zeros, and loops over them. All sums are in the type of the values, in an order that follows
// from lengths alone. Thread rule: pure functions.
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

/// Other numbers of the row become `other`.
template <class T>
void keep(const TileRow& row, T* x, T other) {
  const T self = row.self >= 0 ? x[row.self] : T(0);
  std::fill(x, x + std::min(row.from, kKeys), other);
  std::fill(x + std::min(std::max(row.from, row.to), kKeys), x + kKeys, other);
  if (row.self >= 0) x[row.self] = self;
}

/// s sigmoid(s) by.
template <class T>
BRAID_VECTOR_CLONES void silu(T* s, T by) {
  for (std::int64_t j = 0; j < kKeys; ++j) s[j] = s[j] / (T(1) + vec::exp(-s[j])) * by;
}

/// s becomes silu(s) by, and d, the gradient by that, the gradient by s.
template <class T>
BRAID_VECTOR_CLONES void silu_gradient(T* s, T* d, T by) {
  for (std::int64_t j = 0; j < kKeys; ++j) {
    const T sigmoid = T(1) / (T(1) + vec::exp(-s[j]));
    d[j] = d[j] * by * sigmoid * (T(1) + s[j] * (T(1) - sigmoid));
    s[j] = s[j] * sigmoid * by;
  }
}

/// s becomes exp(s - max).
template <class T>
BRAID_VECTOR_CLONES void exp_from(T* s, T max) {
  for (std::int64_t j = 0; j < kKeys; ++j) s[j] = vec::exp(s[j] - max);
}

/// s becomes p = exp(s - log_sum), and d p (d - dot).
template <class T>
BRAID_VECTOR_CLONES void softmax_gradient(T* s, T* d, T log_sum, T dot) {
  for (std::int64_t j = 0; j < kKeys; ++j) {
    s[j] = vec::exp(s[j] - log_sum);
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
