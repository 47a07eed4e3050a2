// The rows of a sparse table by number: values and slots, and beside them the key and a mark for the update
// under way. Rows never move; new ones are added in slabs, several of which share a block once
// the table is large. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps/table/zeroed_block.h"

namespace braid::ps {

class RowStore {
 public:
  /// Rows of `floats` f32.
  explicit RowStore(std::size_t floats);

  std::size_t size() const { return size_; }
  /// Adds a row of unspecified values. Result: its number.
  std::uint32_t add(std::int64_t key);

  float* row(std::uint32_t row) const { return slab(row).rows + (row & mask_) * stride_; }
  std::int64_t key(std::uint32_t row) const { return slab(row).keys[row & mask_]; }
  /// The owner's, 0 at first.
  std::uint32_t& mark(std::uint32_t row) const { return slab(row).marks[row & mask_]; }

  /// Brings the first `floats` of a row into the cache, ahead of their use. Of a long row four lines: the
  /// processor's own look-ahead brings the rest.
  void prefetch_row(std::uint32_t row, std::size_t floats) const {
    const float* values = this->row(row);
    for (std::size_t i = 0; i < floats && i < 64; i += 16) __builtin_prefetch(values + i, 1);
  }
  void prefetch_mark(std::uint32_t row) const { __builtin_prefetch(&mark(row), 1); }

 private:
  struct Slab {
    float* rows;
    std::int64_t* keys;
    std::uint32_t* marks;
  };
  const Slab& slab(std::uint32_t row) const { return slabs_[row >> bits_]; }
  void add_slabs();

  std::size_t stride_;  // floats of a row: whole cache lines, or a divisor of one
  unsigned bits_;
  std::uint32_t mask_;
  std::size_t size_ = 0;
  std::vector<Slab> slabs_;
  std::vector<ZeroedBlock> blocks_;
};

}  // namespace braid::ps
