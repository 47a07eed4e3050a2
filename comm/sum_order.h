// In which order the host's communicators add up the values of ranks: the same for all of them, so that a job
// has the same bits whether its ranks are processes or threads of one.
//
// Arrays of at most kDirectBytes in groups of at most kDirectRanks are summed in the order of ranks. Larger
// ones are cut into `size` nearly equal segments, from element count * s / size on, and segment s is summed
// in the order s, s + 1, ..., s + size - 1 (mod size); reduce_scatter sums what rank s gets in the order s +
// 1,
// ..., s. Pure functions.
#pragma once

#include <cstdint>

namespace braid::comm {

inline constexpr std::int64_t kDirectBytes = 16 << 10;
inline constexpr int kDirectRanks = 8;

/// Whether ranks exchange an array of an all-reduce whole, and sum it in their order.
inline bool is_summed_directly(std::int64_t bytes, int size) {
  return bytes <= kDirectBytes && size <= kDirectRanks;
}

}  // namespace braid::comm
