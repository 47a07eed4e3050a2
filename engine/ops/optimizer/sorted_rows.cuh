// Rows of several tables of one width, named by indices that may repeat, as grouped entries
// (common/row_entries.h). Kernels walk the runs of equal rows.
#pragma once

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/optimizer/update.cuh"

namespace braid::cuda {

inline constexpr int kMostTables = 42;  // a kernel's arguments are 4 KiB

struct RowTable {
  float* weights;        // [rows, width]
  float* slots[kSlots];  // the same; of a row-wise optimizer [rows]
  const void* values;    // [n, width], or of bags [bags, width], of float32 or a half, in rows of `stride`
  const std::int32_t* bags;    // [n] the row of values that an index has, or null
  const float* value_weights;  // [n] what that is multiplied by, or null
  std::int32_t rows;
  std::int32_t first_row;
  std::int32_t first_entry;
  std::int32_t stride;
  Divider by_hot;  // where there are no bags: so many indices, one after another, have one row of values

  /// The row of values of an index at this position.
  __device__ std::int64_t value_of(std::int64_t position) const {
    return bags ? bags[position] : by_hot.quotient(static_cast<std::uint32_t>(position));
  }
};

struct RowTables {
  int count = 0;
  std::int64_t width = 0;
  RowTable at[kMostTables];

  /// The table that holds a row, or has it behind its own; it is one of [low, high).
  __device__ int index_of(std::int64_t row, int low, int high) const {
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (at[middle].first_row <= row ? low : high) = middle;
    }
    return low;
  }
  __device__ const RowTable& of_row(std::int64_t row) const { return at[index_of(row, 0, count)]; }
};
static_assert(sizeof(RowTables) + sizeof(OptimizerSpec) + 64 <= 4096);

/// A sorted entry.
__device__ inline std::int64_t row_of(std::uint64_t entry) { return static_cast<std::int64_t>(entry >> 32); }
__device__ inline std::int64_t position_of(std::uint64_t entry) {
  return static_cast<std::int64_t>(entry & 0xffffffffU);
}

}  // namespace braid::cuda
