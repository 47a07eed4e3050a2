// Inner products of pairs of vectors of one example, as in the interaction of DLRM (Naumov et al. 2019): what
// the attribute "pairs" of braid.PairDots means. A pair (i, j) of n vectors is i * n + j.
#pragma once

#include <cstdint>
#include <span>

namespace braid {

inline constexpr std::int64_t kMostPairVectors = 32;

/// Whether there are CUDA kernels for n vectors of `width` elements.
constexpr bool pair_dots_on_device(std::int64_t n, std::int64_t width) {
  return n >= 1 && n <= kMostPairVectors &&
         (width == 4 || width == 8 || width == 16 || width == 32 || width == 64);
}

/// Whether all pairs are inside of n x n, and none stands there twice, (j, i) being (i, j).
bool pairs_differ(std::span<const std::int64_t> pairs, std::int64_t n);

}  // namespace braid
