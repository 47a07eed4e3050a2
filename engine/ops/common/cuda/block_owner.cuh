// For kernels of one launch for many tensors, whose parts are arguments in the order of their blocks: which
// part a block works on.
#pragma once

#include <cstdint>

namespace braid::cuda {

/// The last of `parts`, {count, at[]} whose elements have a first_block, that begins at this block or before.
/// REQUIRES: count > 0, and the first one begins at block 0.
template <class Parts>
__device__ const auto& part_of_block(const Parts& parts, std::int32_t block) {
  int low = 0;
  for (int high = parts.count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (parts.at[middle].first_block <= block ? low : high) = middle;
  }
  return parts.at[low];
}

}  // namespace braid::cuda
