// Row indices that may repeat: checking them, and grouping the positions of equal ones so that sums over
// duplicates have one order, that of the positions, however many threads work on the groups. What gathers'
// gradients, scatters, segment sums and sparse updates share. Stable radix sort in O(n) with a workspace from
// the kernel's scratch. Thread rule: an IndexGroups is made by one thread and read by many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace braid {

/// Throws: InvalidArgument "<place>: indices[3] = 17 is not in [0, 10)" for the first one out of range.
template <class I>
void check_indices(const std::string& place, const I* indices, std::int64_t n, std::int64_t bound);
/// As above, but negative ones are allowed: ids of segments that are left out.
template <class I>
void check_segment_ids(const std::string& place, const I* ids, std::int64_t n, std::int64_t bound);

/// Attribute of ops that take indices of rows: negative ones are left out, where lists of rows are padded.
inline constexpr const char* kSkipNegative = "skip_negative";
/// Attribute of the node that makes such a list of a gradient's rows, or joins one to others: what updates by
/// it needs kSkipNegative. engine/autodiff hands it on.
inline constexpr const char* kPadsIndices = "pads_indices";

class IndexGroups {
 public:
  static std::size_t scratch_bytes(std::int64_t n);

  /// Groups of equal indices, smallest index first; negative ones are left out. `scratch` outlives the
  /// object. REQUIRES: indices[k] < bound; n and bound below 2^32.
  template <class I>
  IndexGroups(const I* indices, std::int64_t n, std::int64_t bound, void* scratch);
  /// The groups of `n` entries, index << 32 | position, that the scratch begins with and that are sorted.
  IndexGroups(std::int64_t n, void* scratch);
  /// check_indices() and their groups, for kernels that need to know no more of the indices' type: int32 or
  /// int64.
  static IndexGroups checked(const std::string& place, DType dtype, const void* indices, std::int64_t n,
                             std::int64_t bound, void* scratch);

  std::int64_t size() const { return size_; }
  std::int64_t index(std::int64_t group) const {
    return static_cast<std::int64_t>(keys_[starts_[group]] >> kPositionBits);
  }
  /// The positions k of a group are position(begin(g)) < ... < position(end(g) - 1).
  std::int64_t begin(std::int64_t group) const { return starts_[group]; }
  std::int64_t end(std::int64_t group) const { return starts_[group + 1]; }
  std::int64_t position(std::int64_t entry) const {
    return static_cast<std::int64_t>(keys_[entry] & kPositionMask);
  }

 private:
  static constexpr int kPositionBits = 32;
  static constexpr std::uint64_t kPositionMask = 0xFFFFFFFF;

  void sort(std::uint64_t* spare, std::int64_t entries, std::int64_t bound);
  void find_starts(std::int64_t entries);

  std::uint64_t* keys_;    // [entries] index << 32 | position, sorted
  std::uint32_t* starts_;  // [size_ + 1]
  std::int64_t size_ = 0;
};

}  // namespace braid
