// Matrix products c = op(a) op(b), one or a batch of them; MatMul and the BatchMatMuls are this. float32 goes
// to oneDNN, products with a vector and other types to loops of our own (oneDNN has no float64 here, and is
// slower than memory for vectors). The work is cut into blocks of rows, of columns, or of batch entries, by
// shapes alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

/// op(a) is [m, k], op(b) is [k, n], c is [m, n]; row-major. With transpose_a, a is stored as [k, m];
/// likewise b as [n, k].
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  /// For each batch entry the matrix of a and of b that it takes, counted in matrices.
  std::vector<std::int64_t> a_index = {0}, b_index = {0};

  std::int64_t batch() const { return static_cast<std::int64_t>(a_index.size()); }
  double flops_each() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Multiplies inputs 0 and 1 into output 0. Types: float32, float64, int32, int64.
PreparedKernel prepare_gemm(const PrepareContext& c, const Gemm& gemm);

// The parts of prepare_gemm. REQUIRES: nothing is empty.
PreparedKernel prepare_gemm_dnnl(const PrepareContext& c, const Gemm& gemm);  // float32
template <class T>
PreparedKernel prepare_gemm_loops(const PrepareContext& c, const Gemm& gemm);
/// REQUIRES: m or n is 1, batch() is 1.
template <class T>
PreparedKernel prepare_matrix_vector(const PrepareContext& c, const Gemm& gemm);

}  // namespace braid
