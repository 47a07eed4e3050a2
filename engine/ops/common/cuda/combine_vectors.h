// Sums of vectors of an example with factors: y_r[b] = sum over t of factor_t[b, r] vector_t[b], for r below
// `rows`: mixtures of experts by gates, and their gradients. What it costs is reading the vectors and writing
// the sums, each once, where cuBLASLt's kernels for large tiles waste most of their work.
#pragma once

#include <array>
#include <cstdint>

#include "base/stream_ref.h"

namespace braid::cuda {

struct Combination {
  static constexpr int kMostTerms = 32;
  static constexpr std::int64_t kMostFactors = 8192;  // of an example

  std::int64_t examples = 0;
  int terms = 0;
  std::int64_t rows = 0, columns = 0;
  /// From one example to the next, and of factors and sums from one row to the next, in elements.
  std::int64_t factor_stride = 0, factor_row = 0, vector_stride = 0, out_stride = 0, out_row = 0;

  /// Whether there is a kernel: columns and strides of vectors and sums are multiples of four.
  bool is_supported() const;
};

/// Where a run's operands are; vectors and sums at multiples of 16 bytes.
struct CombinationArgs {
  std::array<const float*, Combination::kMostTerms> factors{}, vectors{};
  float* out = nullptr;
  StreamRef stream;
};

/// REQUIRES: combination.is_supported().
void combine_vectors(const Combination& combination, const CombinationArgs& args);

}  // namespace braid::cuda
