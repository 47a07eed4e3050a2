// The rows that indices of several tables name, grouped (engine/ops/common/row_entries.h): which positions
// name which row, in one order. An index out of range is reported and counts as the row behind its table's.
//
// Tables of up to 16,384 indices are sorted by a block each, in one launch; with larger ones all are made one
// list for CUB's radix sort. Stream: everything is enqueued.
#pragma once

#include <span>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/cuda/index_groups.h"

namespace braid::cuda {

struct IndexedTable {
  std::int64_t rows, indices;
  bool is_index64;
  bool skip_negative = false;
};

/// Whether the rows and indices of all tables can be counted in an entry.
bool fits_entries(std::span<const IndexedTable> tables);

class RowGrouping {
 public:
  /// REQUIRES: fits_entries(tables).
  explicit RowGrouping(std::vector<IndexedTable> tables);

  std::int64_t entries() const { return entries_; }
  std::size_t scratch_bytes() const { return by_block_ == ByBlock::None ? sort_.work_bytes() : 0; }
  /// The indices of table t are input `first + t * stride`. Throws: DeviceError.
  void run(const KernelArgs& a, int first, int stride, void* scratch, std::uint64_t* entries) const;

 private:
  /// Whether a block sorts a table, and by keys of which size.
  enum class ByBlock { None, Narrow, Wide };
  static ByBlock choice(std::span<const IndexedTable> tables);

  std::vector<IndexedTable> tables_;
  std::int64_t entries_ = 0;
  ByBlock by_block_;
  IndexSort sort_;
};

}  // namespace braid::cuda
