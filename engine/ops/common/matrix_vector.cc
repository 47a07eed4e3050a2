// Products of a matrix with a vector, which are bound by reading the matrix once: dot products where the
// vector lies along its rows, sums of scaled rows where it lies across them.
#include <cstring>

#include "engine/ops/common/gemm.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnTile = 1024;

/// y[r] = <matrix row r, x>.
template <class T>
BRAID_VECTOR_CLONES void dot_rows(const T* matrix, std::int64_t rows, std::int64_t n, const T* x, T* y) {
  constexpr int kLanes = 64 / sizeof(T);
  typedef T V __attribute__((vector_size(64)));
  for (std::int64_t r = 0; r < rows; ++r, matrix += n) {
    V acc[4] = {};
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      V a[4], b[4];
      std::memcpy(a, matrix + i, sizeof a);
      std::memcpy(b, x + i, sizeof b);
      for (int k = 0; k < 4; ++k) acc[k] += a[k] * b[k];
    }
    acc[0] = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    T sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += acc[0][lane];
    for (; i < n; ++i) sum += matrix[i] * x[i];
    y[r] = sum;
  }
}

/// y[j] = sum over r of x[r] matrix[r * stride + j], four rows at a time.
template <class T>
BRAID_VECTOR_CLONES void scaled_rows(const T* matrix, std::int64_t stride, std::int64_t rows, const T* x,
                                     T* y, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) y[j] = 0;
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4, matrix += 4 * stride) {
    const T *m0 = matrix, *m1 = m0 + stride, *m2 = m1 + stride, *m3 = m2 + stride;
    const T x0 = x[r], x1 = x[r + 1], x2 = x[r + 2], x3 = x[r + 3];
#pragma GCC ivdep  // the result overlaps no operand
    for (std::int64_t j = 0; j < n; ++j) y[j] += (x0 * m0[j] + x1 * m1[j]) + (x2 * m2[j] + x3 * m3[j]);
  }
  for (; r < rows; ++r, matrix += stride) {
    const T factor = x[r];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) y[j] += factor * matrix[j];
  }
}

}  // namespace

template <class T>
PreparedKernel prepare_matrix_vector(const PrepareContext& c, const Gemm& g) {
  const int matrix = g.n == 1 ? 0 : 1;
  const std::int64_t size = g.n == 1 ? g.m : g.n;
  const std::int64_t depth = g.k;
  const bool along_rows = g.n == 1 ? !g.transpose_a : g.transpose_b;
  if (along_rows)
    return parallel_kernel(c, size, row_grain(depth),
                           [=](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             dot_rows(args.in<T>(matrix) + begin * depth, end - begin, depth,
                                      args.in<T>(1 - matrix), args.out<T>(0) + begin);
                           });
  return parallel_kernel(c, size, kColumnTile,
                         [=](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           scaled_rows(args.in<T>(matrix) + begin, size, depth, args.in<T>(1 - matrix),
                                       args.out<T>(0) + begin, end - begin);
                         });
}

template PreparedKernel prepare_matrix_vector<float>(const PrepareContext&, const Gemm&);
template PreparedKernel prepare_matrix_vector<double>(const PrepareContext&, const Gemm&);

}  // namespace braid
