#include "engine/ops/common/cuda/row_grouping.h"

#include <algorithm>
#include <bit>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/table_sort.cuh"
#include "engine/ops/common/row_entries.h"

namespace braid::cuda {
namespace {

/// The entries before the sort.
__global__ void row_entries_kernel(const __grid_constant__ IndexTables tables, std::int64_t n,
                                   std::uint64_t* entries, StepStatus* status, int op) {
  const std::int64_t first = tables.at[0].first_entry;
  for (std::int64_t e = first + grid_index(); e < first + n; e += grid_size()) {
    int low = 0;  // the last table that begins there or before: one of no indices begins where the next does
    for (int high = tables.count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (tables.at[middle].first_entry <= e ? low : high) = middle;
    }
    const IndexTable& t = tables.at[low];
    const auto k = static_cast<std::int32_t>(e - t.first_entry);
    const std::int32_t row = t.is_index64 ? row_at<std::int64_t>(t, k) : row_at<std::int32_t>(t, k);
    if (row == t.rows) report_index(t, k, status, op);
    entries[e] = entry_of(t, row, k);
  }
}

IndexSort sort_of_all(std::span<const IndexedTable> tables) {
  EntryBase end;
  for (const IndexedTable& t : tables) end.pass(t.rows, t.indices);
  return {end.entry, end.row - 1};
}

}  // namespace

bool fits_entries(std::span<const IndexedTable> tables) {
  EntryBase end;
  for (const IndexedTable& t : tables) end.pass(t.rows, t.indices);
  return end.row < kEntryLimit && end.entry < kEntryLimit;
}

RowGrouping::ByBlock RowGrouping::choice(std::span<const IndexedTable> tables) {
  std::int64_t indices = 0;
  int key_bits = 0;
  for (const IndexedTable& t : tables) {
    indices = std::max(indices, t.indices);
    key_bits = std::max(key_bits, sort_bits(t.rows) + position_bits(t.indices));
  }
  if (indices <= NarrowSort::kMost && key_bits <= 32) return ByBlock::Narrow;
  return indices <= WideSort::kMost ? ByBlock::Wide : ByBlock::None;
}

RowGrouping::RowGrouping(std::vector<IndexedTable> tables)
    : tables_(std::move(tables)), by_block_(choice(tables_)), sort_(sort_of_all(tables_)) {
  for (const IndexedTable& t : tables_) entries_ += t.indices;
}

void RowGrouping::run(const KernelArgs& a, int first, int stride, void* scratch,
                      std::uint64_t* entries) const {
  if (entries_ == 0) return;
  EntryBase base;
  for (std::size_t begin = 0; begin < tables_.size(); begin += kMostIndexTables) {
    IndexTables batch;
    std::int64_t n = 0, most = 0;
    for (std::size_t i = begin; i < std::min(tables_.size(), begin + kMostIndexTables); ++i) {
      const IndexedTable& t = tables_[i];
      batch.at[batch.count++] = {.indices = a.inputs[first + static_cast<int>(i) * stride],
                                 .rows = static_cast<std::int32_t>(t.rows),
                                 .n = static_cast<std::int32_t>(t.indices),
                                 .first_row = static_cast<std::int32_t>(base.row),
                                 .first_entry = static_cast<std::int32_t>(base.entry),
                                 .sort_bits = static_cast<std::int16_t>(sort_bits(t.rows)),
                                 .position_bits = static_cast<std::int8_t>(position_bits(t.indices)),
                                 .is_index64 = t.is_index64,
                                 .skip_negative = t.skip_negative};
      base.pass(t.rows, t.indices);
      n += t.indices;
      most = std::max(most, t.indices);
    }
    if (by_block_ == ByBlock::Narrow)
      sort_tables<NarrowSort>(a, batch, most, entries);
    else if (by_block_ == ByBlock::Wide)
      sort_tables<WideSort>(a, batch, most, entries);
    else if (n != 0)
      launch(row_entries_kernel, blocks_for(n), kThreads, 0, a.stream, batch, n, sort_.unsorted(scratch),
             a.status, a.op);
  }
  if (by_block_ == ByBlock::None) sort_.sort(scratch, entries, a.stream);
}

}  // namespace braid::cuda
