// Matrix products of the types that oneDNN does not have: four rows of c at a time, b packed to [k, n] when
// it is stored transposed. c[i, j] is summed over k in order, whatever the blocks.
#include <algorithm>

#include "engine/ops/common/gemm.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

constexpr std::int64_t kRows = 4;       // of c in registers or the first-level cache
constexpr std::int64_t kColumns = 256;  // of c a pass

/// y[r, 0..n) = sum over k of a[r * a_row + k * a_step] * b[k * b_row + 0..n), for `rows` <= kRows rows.
template <class T>
BRAID_VECTOR_CLONES void multiply(const T* a, std::int64_t a_row, std::int64_t a_step, const T* b,
                                  std::int64_t b_row, T* y, std::int64_t y_row, std::int64_t rows,
                                  std::int64_t n, std::int64_t depth) {
  T acc[kRows][kColumns] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const T* row = b + k * b_row;
    for (std::int64_t r = 0; r < rows; ++r) {
      const T factor = a[r * a_row + k * a_step];
      for (std::int64_t j = 0; j < n; ++j) acc[r][j] += factor * row[j];
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) std::copy(acc[r], acc[r] + n, y + r * y_row);
}

template <class T>
void pack_transposed(const T* b, std::int64_t n, std::int64_t k, T* packed) {
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < k; ++i) packed[i * n + j] = b[j * k + i];
}

}  // namespace

template <class T>
PreparedKernel prepare_gemm_loops(const PrepareContext& c, const Gemm& g) {
  using W = wrapping_t<T>;
  const std::int64_t matrices = g.transpose_b ? 1 + *std::max_element(g.b_index.begin(), g.b_index.end()) : 0;
  const std::int64_t strips = (g.m + kRows - 1) / kRows;
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(matrices * g.k * g.n) * sizeof(T);
  kernel.run = [g, matrices, strips, pool = &c.pool](const KernelArgs& args) {
    const W* b = args.in<W>(1);
    if (matrices > 0) {
      W* packed = static_cast<W*>(args.scratch);
      pool->parallel_for(matrices, [&](std::int64_t i) {
        pack_transposed(args.in<W>(1) + i * g.k * g.n, g.n, g.k, packed + i * g.k * g.n);
      });
      b = packed;
    }
    const std::int64_t a_row = g.transpose_a ? 1 : g.k, a_step = g.transpose_a ? g.m : 1;
    pool->parallel_range(
        g.batch() * strips, row_grain(kRows * g.n * g.k), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t s = begin; s < end; ++s) {
            const std::int64_t entry = s / strips, row = s % strips * kRows;
            const W* a = args.in<W>(0) + g.a_index[static_cast<std::size_t>(entry)] * g.m * g.k + row * a_row;
            const W* w = b + g.b_index[static_cast<std::size_t>(entry)] * g.k * g.n;
            W* y = args.out<W>(0) + (entry * g.m + row) * g.n;
            for (std::int64_t j = 0; j < g.n; j += kColumns)
              multiply(a, a_row, a_step, w + j, g.n, y + j, g.n, std::min(kRows, g.m - row),
                       std::min(kColumns, g.n - j), g.k);
          }
        });
  };
  return kernel;
}

template PreparedKernel prepare_gemm_loops<double>(const PrepareContext&, const Gemm&);
template PreparedKernel prepare_gemm_loops<std::int32_t>(const PrepareContext&, const Gemm&);
template PreparedKernel prepare_gemm_loops<std::int64_t>(const PrepareContext&, const Gemm&);

}  // namespace braid
