// Rows that vectors of indices address (common/nd_addressing.h), on a device.
#pragma once

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/nd_addressing.h"

namespace braid::cuda {

/// NdAddressing as a kernel's argument.
struct NdRows {
  static constexpr int kMaxDepth = 16;
  int depth = 0;
  std::int64_t dims[kMaxDepth];
  std::int64_t strides[kMaxDepth];
  std::int64_t rows, width, count;

  /// REQUIRES: supports().
  explicit NdRows(const NdAddressing& to)
      : depth(static_cast<int>(to.dims.size())), rows(to.rows), width(to.width), count(to.count) {
    for (int i = 0; i < depth; ++i) {
      dims[i] = to.dims[static_cast<std::size_t>(i)];
      strides[i] = to.strides[static_cast<std::size_t>(i)];
    }
  }

  static bool supports(const Shape& whole) { return whole.has_rank() && whole.rank() <= kMaxDepth; }

  /// The row that vector k addresses; `rows`, after a report, when it is out of range.
  template <class I>
  __device__ std::int64_t row(const I* indices, std::int64_t k, StepStatus* status, int op) const {
    std::int64_t sum = 0;
    for (int i = 0; i < depth; ++i) {
      const auto index = static_cast<std::int64_t>(indices[k * depth + i]);
      if (index < 0 || index >= dims[i]) {
        report(status, op, StatusCode::IndexOutOfRange, index, dims[i]);
        return rows;
      }
      sum += index * strides[i];
    }
    return sum;
  }
};

template <class I>
__global__ void nd_entries_kernel(const I* indices, std::uint64_t* entries, NdRows to, StepStatus* status,
                                  int op) {
  for (std::int64_t k = grid_index(); k < to.count; k += grid_size())
    entries[k] =
        static_cast<std::uint64_t>(to.row(indices, k, status, op)) << 32 | static_cast<std::uint64_t>(k);
}

/// The entries of a RowUpdate (common/cuda/row_groups.h) of one update a vector.
inline void make_nd_entries(const KernelArgs& a, const NdRows& to, const void* indices, DType index_type,
                            std::uint64_t* entries) {
  if (to.count == 0) return;
  with_index("ScatterNd", index_type, [&]<class I>() {
    launch(nd_entries_kernel<I>, blocks_for(to.count), kThreads, 0, a.stream, static_cast<const I*>(indices),
           entries, to, a.status, a.op);
  });
}

}  // namespace braid::cuda
