// Row indices that may repeat, on a device: entries (index, position) sorted by index and, where indices are
// equal, by position, as common/index_groups.h does on the host. Sums over duplicates then have one order
// (common/cuda/row_groups.h). An entry is index << 32 | position; an index that is left out or out of range
// is `bound`, so such entries come last.
//
// Stream: everything is enqueued. The sort is a single block's for few entries, else CUB's radix sort over
// the bits that indices below the bound have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream_ref.h"

namespace braid::cuda {

class IndexSort {
 public:
  /// REQUIRES: n and bound below 2^31.
  IndexSort(std::int64_t n, std::int64_t bound);

  /// A multiple of 256; the result is in it, or not.
  std::size_t scratch_bytes() const { return keys_bytes_ + work_bytes(); }
  std::size_t work_bytes() const { return keys_bytes_ + sort_bytes_; }
  /// Where the unsorted entries are put.
  std::uint64_t* unsorted(void* scratch) const { return static_cast<std::uint64_t*>(scratch); }
  /// Sorts them; the result is in the scratch too, or in `to` [n]. Throws: DeviceError.
  const std::uint64_t* sort(void* scratch, StreamRef stream) const;
  void sort(void* scratch, std::uint64_t* to, StreamRef stream) const;

  std::int64_t n() const { return n_; }
  std::int64_t bound() const { return bound_; }

 private:
  std::int64_t n_, bound_;
  int end_bit_;  // of the keys
  std::size_t keys_bytes_, sort_bytes_ = 0;
};

}  // namespace braid::cuda
