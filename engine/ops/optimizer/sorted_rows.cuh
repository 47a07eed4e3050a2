// Rows of several tables of one width, named by indices that may repeat, as grouped entries
// (common/row_entries.h). Kernels walk the runs of equal rows.
#pragma once

#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/optimizer/update.cuh"

namespace braid::cuda {

inline constexpr int kMostTables = 60;  // a kernel's arguments are 4 KiB

struct RowTable {
  float* weights;        // [rows, width]
  float* slots[kSlots];  // the same
  const float* values;   // [n, width]
  std::int64_t rows;
  std::int64_t first_row;
  std::int64_t first_entry;
};

struct RowTables {
  int count = 0;
  std::int64_t width = 0;
  RowTable at[kMostTables];

  /// The table that holds a row, or has it behind its own.
  __device__ const RowTable& of_row(std::int64_t row) const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (at[middle].first_row <= row ? low : high) = middle;
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

}  // namespace braid::cuda
