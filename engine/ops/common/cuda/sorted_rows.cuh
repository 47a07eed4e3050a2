// Rows of several tables of one width, named by indices that may repeat: the entries (row, position) of all
// tables sorted as one list (index_groups.h), where a row's number counts through the tables one after the
// other and a position through their indices. Kernels then walk the runs of equal rows.
#pragma once

#include "engine/ops/common/cuda/index_groups.h"
#include "engine/ops/common/cuda/update.cuh"

namespace braid::cuda {

inline constexpr int kMostTables = 44;  // a kernel's arguments are 4 KiB

struct RowTable {
  float* weights;        // [rows, width]
  float* slots[kSlots];  // the same
  const float* values;   // [n, width]
  const void* indices;   // [n]
  std::int64_t rows;
  std::int64_t first_row;
  std::int64_t first_entry;
  bool is_index64;
};

struct RowTables {
  int count = 0;
  std::int64_t rows = 0, entries = 0;  // of all tables
  std::int64_t width = 0;
  RowTable at[kMostTables];

  /// The table that holds a row, or an entry before the sort.
  __device__ const RowTable& of_row(std::int64_t row) const { return find<&RowTable::first_row>(row); }
  __device__ const RowTable& of_entry(std::int64_t entry) const {
    return find<&RowTable::first_entry>(entry);
  }

 private:
  /// The last table that begins there or before: one that holds nothing begins where the next one does.
  template <std::int64_t RowTable::*kFirst>
  __device__ const RowTable& find(std::int64_t value) const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (at[middle].*kFirst <= value ? low : high) = middle;
    }
    return at[low];
  }
};
static_assert(sizeof(RowTables) + sizeof(OptimizerSpec) + 64 <= 4096);

/// A sorted entry.
__device__ inline std::int64_t row_of(std::uint64_t entry) { return static_cast<std::int64_t>(entry >> 32); }
__device__ inline std::int64_t position_of(std::uint64_t entry) {
  return static_cast<std::int64_t>(entry & 0xffffffffU);
}

/// The entries before the sort. An index out of range is reported and gets the row behind all others.
static __global__ void row_entries_kernel(const __grid_constant__ RowTables tables, std::uint64_t* entries,
                                          StepStatus* status, int op) {
  for (std::int64_t e = grid_index(); e < tables.entries; e += grid_size()) {
    const RowTable& t = tables.of_entry(e);
    const std::int64_t k = e - t.first_entry;
    const std::int64_t index = t.is_index64 ? static_cast<const std::int64_t*>(t.indices)[k]
                                            : static_cast<const std::int32_t*>(t.indices)[k];
    std::int64_t row = tables.rows;
    if (index >= 0 && index < t.rows)
      row = t.first_row + index;
    else
      report(status, op, StatusCode::IndexOutOfRange, index, t.rows);
    entries[e] = static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint64_t>(e);
  }
}

}  // namespace braid::cuda
