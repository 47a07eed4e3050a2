// Dot products of some vectors of an example with others of it: y[b, r, t] = x_r[b] . v_t[b]: the gradient of
// a mixture's gates, attention with one query. What it costs is reading the vectors, once; cuBLASLt's kernels
// for large tiles waste most of their work on such batches.
#pragma once

#include <cstdint>

#include "base/stream_ref.h"

namespace braid::cuda {

struct VectorDots {
  std::int64_t examples = 0, rows = 0, terms = 0, columns = 0;  // columns: of a vector
  /// From one example to the next, and from one row to the next, in elements. Terms lie side by side.
  std::int64_t x_stride = 0, x_row = 0, vector_stride = 0, out_stride = 0, out_row = 0;

  /// Whether there is a kernel that gains: many examples with few rows and terms, long vectors, columns and
  /// strides of vectors multiples of four.
  bool is_supported() const;
};

/// x and vectors at multiples of 16 bytes, or it is slower. REQUIRES: dots.is_supported().
void vector_dots(const VectorDots& dots, const float* x, const float* vectors, float* out, StreamRef stream);

}  // namespace braid::cuda
