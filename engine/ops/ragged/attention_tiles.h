// What attention on the CPU, ragged and dense, is made of: tiles of queries and keys of one head, packed side
// by side and filled with zeros, and loops over them. All sums are in the type of the values, in an order
// that follows from lengths alone. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/ops/common/vector_math.h"

namespace braid::attention {

// Products are vectors in registers that multiply and add at once, as those of oneDNN: the same bits on each
// processor that can. Kernels otherwise do not contract (kernel_util.h).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(BRAID_SANITIZED)
#ifdef BRAID_VECTORS
#define BRAID_WITH_FMA target(BRAID_VECTORS ",fma")
#else
#define BRAID_WITH_FMA target_clones("avx512f", "arch=haswell", "default")
#endif
#define BRAID_PRODUCT_CLONES __attribute__((BRAID_WITH_FMA, optimize("fp-contract=fast")))
// The same number by number: a vector of products that is added up in order would round twice.
#define BRAID_SCALAR_CLONES __attribute__((BRAID_WITH_FMA, optimize("fp-contract=fast", "no-tree-vectorize")))
#else
#define BRAID_PRODUCT_CLONES
#define BRAID_SCALAR_CLONES
#endif

inline constexpr std::int64_t kQueries = 96, kKeys = 96;  // of a tile
inline constexpr std::int64_t kRowBlock = 6;              // rows of a product in registers
inline constexpr std::int64_t kLanes = 16;                // numbers that products have columns of
static_assert(kQueries % kRowBlock == 0 && kKeys % kRowBlock == 0 && kKeys % kLanes == 0);

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Whether two vectors of columns are faster than one. Their bits are the same.
inline bool has_many_registers() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
#else
  return false;
#endif
}

/// Of kVectors vectors of columns.
template <int kVectors, bool kAdds, class T>
BRAID_INLINE void multiply_columns(std::int64_t m, std::int64_t k, const T* a, std::int64_t a_row,
                                   std::int64_t a_step, const T* b, std::int64_t b_row, T* c,
                                   std::int64_t c_row) {
  typedef T V __attribute__((vector_size(64)));
  constexpr std::int64_t lanes = 64 / sizeof(T);
  for (std::int64_t i = 0; i < m; i += kRowBlock) {
    V acc[kRowBlock][kVectors] = {};
    if constexpr (kAdds)
      for (int r = 0; r < kRowBlock; ++r)
        for (int v = 0; v < kVectors; ++v)
          std::memcpy(&acc[r][v], c + (i + r) * c_row + v * lanes, sizeof(V));
    const T* from = a + i * a_row;
    for (std::int64_t p = 0; p < k; ++p) {
      V row[kVectors];
      for (int v = 0; v < kVectors; ++v) std::memcpy(&row[v], b + p * b_row + v * lanes, sizeof(V));
      for (int r = 0; r < kRowBlock; ++r)
        for (int v = 0; v < kVectors; ++v) acc[r][v] += from[r * a_row + p * a_step] * row[v];
    }
    for (int r = 0; r < kRowBlock; ++r)
      for (int v = 0; v < kVectors; ++v) std::memcpy(c + (i + r) * c_row + v * lanes, &acc[r][v], sizeof(V));
  }
}

/// c[i, j] = sum over p < k of a[i * a_row + p * a_step] * b[p * b_row + j], with kAdds added to what is
/// there. REQUIRES: m is a multiple of kRowBlock, n one of kLanes.
template <bool kAdds, class T>
BRAID_PRODUCT_CLONES void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                                   std::int64_t a_row, std::int64_t a_step, const T* b, std::int64_t b_row,
                                   T* c, std::int64_t c_row) {
  constexpr std::int64_t lanes = 64 / sizeof(T);
  std::int64_t j = 0;
  for (; has_many_registers() && j + 2 * lanes <= n; j += 2 * lanes)
    multiply_columns<2, kAdds>(m, k, a, a_row, a_step, b + j, b_row, c + j, c_row);
  for (; j < n; j += lanes) multiply_columns<1, kAdds>(m, k, a, a_row, a_step, b + j, b_row, c + j, c_row);
}

/// dots[i] = sum over p < width of x[i, p] y[i, p], rounded as multiply() rounds: a query that sees one key
/// has no gradient.
template <class T>
BRAID_SCALAR_CLONES void row_dots(std::int64_t rows, std::int64_t width, const T* x, std::int64_t x_row,
                                  const T* y, std::int64_t y_row, T* dots) {
  constexpr std::int64_t kAtOnce = 8;
  std::int64_t i = 0;
  for (; i + kAtOnce <= rows; i += kAtOnce) {
    T sums[kAtOnce] = {};
    for (std::int64_t p = 0; p < width; ++p)
      for (std::int64_t r = 0; r < kAtOnce; ++r) sums[r] += x[(i + r) * x_row + p] * y[(i + r) * y_row + p];
    for (std::int64_t r = 0; r < kAtOnce; ++r) dots[i + r] = sums[r];
  }
  for (; i < rows; ++i) {
    T sum = 0;
    for (std::int64_t p = 0; p < width; ++p) sum += x[i * x_row + p] * y[i * y_row + p];
    dots[i] = sum;
  }
}

/// Pairs of rows, `kSize` apart, of a square of vectors change the parts that lie across its diagonal.
template <int kSize, class V, class I, int kVectors>
BRAID_INLINE void swap_parts(V (&rows)[kVectors]) {
  I low{}, high{};  // places in both rows, one behind the other
#pragma GCC unroll 16
  for (int l = 0; l < kVectors; ++l) {
    low[l] = (l & kSize) ? kVectors + l - kSize : l;
    high[l] = (l & kSize) ? kVectors + l : l + kSize;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    if (i & kSize) continue;
    const V a = rows[i], b = rows[i + kSize];
    rows[i] = __builtin_shuffle(a, b, low);
    rows[i + kSize] = __builtin_shuffle(a, b, high);
  }
}
template <class T>
BRAID_INLINE void transpose_square(const T* from, std::int64_t step, T* to, std::int64_t to_step) {
  typedef T V __attribute__((vector_size(64)));
  using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  typedef Index I __attribute__((vector_size(64)));
  constexpr int lanes = 64 / sizeof(T);
  V rows[lanes];
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) std::memcpy(&rows[i], from + i * step, sizeof(V));
  swap_parts<1, V, I>(rows);
  swap_parts<2, V, I>(rows);
  swap_parts<4, V, I>(rows);
  if constexpr (lanes > 8) swap_parts<8, V, I>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) std::memcpy(to + i * to_step, &rows[i], sizeof(V));
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
BRAID_VECTOR_CLONES void pack_transposed(const T* from, std::int64_t step, std::int64_t count,
                                         std::int64_t width, T* to) {
  constexpr std::int64_t lanes = 64 / sizeof(T);
  const std::int64_t rows = count / lanes * lanes, columns = width / lanes * lanes;
  for (std::int64_t i = 0; i < rows; i += lanes)
    for (std::int64_t j = 0; j < columns; j += lanes)
      transpose_square(from + i * step + j, step, to + j * kKeys + i, kKeys);
  for (std::int64_t j = 0; j < width; ++j) {
    T* row = to + j * kKeys;
    for (std::int64_t i = j < columns ? rows : 0; i < count; ++i) row[i] = from[i * step + j];
    for (std::int64_t i = count; i < round_up(count, kLanes); ++i) row[i] = 0;
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
