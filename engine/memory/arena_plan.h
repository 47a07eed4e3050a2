// Where each buffer lies in an arena. Greedy: largest first, each into the smallest gap that fits among the
// buffers that it must not share bytes with (best fit; Pisarchyk and Lee, "Efficient memory management for
// deep neural net inference", 2020). Who may share with whom is the caller's knowledge. Thread rule: pure
// function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bit_matrix.h"

namespace braid {

inline constexpr std::uint64_t kArenaAlignment = 64;

struct ArenaPlan {
  std::vector<std::uint64_t> offsets;  // multiples of kArenaAlignment
  std::uint64_t bytes = 0;
};

/// REQUIRES: may_share is symmetric and has sizes.size() rows. Cost: one bit test for each pair.
ArenaPlan plan_arena(std::span<const std::uint64_t> sizes, const BitMatrix& may_share);

inline std::uint64_t align_up(std::uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

}  // namespace braid
