// Inner products of pairs of vectors of one example, as in the interaction of DLRM (Naumov et al. 2019): the
// inputs of braid.PairDots and braid.PairDotsGrad, and what their attribute "pairs" means. A pair (i, j) of n
// vectors is i * n + j.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ir/op.h"

namespace braid {

inline constexpr std::int64_t kMostPairVectors = 32;

/// Whether there are CUDA kernels for n vectors of `width` elements.
constexpr bool pair_dots_on_device(std::int64_t n, std::int64_t width) {
  return n >= 1 && n <= kMostPairVectors &&
         (width == 4 || width == 8 || width == 16 || width == 32 || width == 64);
}

/// Whether all pairs are inside of n x n, and none stands there twice, (j, i) being (i, j).
bool pairs_differ(std::span<const std::int64_t> pairs, std::int64_t n);

/// The vectors of a node: one input [b, n, d], or n inputs [b, d].
struct PairVectors {
  int first = 0;   // input
  int inputs = 1;  // how many they are
  std::int64_t examples = 0, n = 0, width = 0;

  bool apart() const { return inputs != 1 || n == 1; }
  /// Of an example's vector to the next example's, and to the next one in the same input.
  std::int64_t example_stride() const { return inputs == 1 ? n * width : width; }
};
PairVectors pair_vectors(const Node& node, std::span<const OutputInfo> inputs);

/// Of another input that stand in front of the products in a braid.PairDots' output.
std::int64_t columns_before_pairs(const PrepareContext& c);

}  // namespace braid
