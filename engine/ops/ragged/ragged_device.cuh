// Ragged values in CUDA kernels (ragged_offsets.h has the terms): offsets as kernels read them, and moves of
// rows. Offsets that do not begin with 0, fall or leave the values are reported, and nothing is read or
// written beyond the values for them.
#pragma once

#include <bit>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/ragged/ragged_offsets.h"

namespace braid::cuda {

/// Launches take it by value.
struct DeviceOffsets {
  const void* at;       // null: each row has `width` values
  std::int64_t rows;    // of the batch
  std::int64_t values;  // that there is room for
  std::int64_t width;
  bool is_wide;  // int64

  /// Where row `row` begins, which may be anywhere: data are not to be trusted. REQUIRES: row <= rows.
  __device__ std::int64_t begin(std::int64_t row) const {
    if (!at) return row * width;
    return is_wide ? static_cast<const std::int64_t*>(at)[row] : static_cast<const std::int32_t*>(at)[row];
  }
  __device__ std::int64_t length(std::int64_t row) const { return begin(row + 1) - begin(row); }
  __device__ std::int64_t used() const {
    const std::int64_t end = begin(rows);
    return end < 0 ? 0 : end < values ? end : values;
  }
  /// Whether row `row` lies within the values, behind the rows before it. REQUIRES: row < rows.
  __device__ bool is_good(std::int64_t row) const {
    const std::int64_t first = begin(row), end = begin(row + 1);
    return (row == 0 ? first == 0 : first >= 0) && first <= end && end <= values;
  }
  __device__ void check(std::int64_t row, StepStatus* status, int op) const {
    if (row >= rows || is_good(row)) return;
    const std::int64_t first = begin(row);
    report(status, op, StatusCode::IndexOutOfRange, row == 0 && first != 0 ? first : begin(row + 1), values);
  }
};

/// The row among `rows` that value k belongs to: the last one that begins at or before k.
/// begin(r) -> where row r begins. REQUIRES: rows > 0.
template <class Begin>
__device__ std::int64_t row_of_value(std::int64_t rows, std::int64_t k, const Begin& begin) {
  std::int64_t low = 0;
  for (std::int64_t high = rows; high - low > 1;) {
    const std::int64_t middle = (low + high) / 2;
    (begin(middle) <= k ? low : high) = middle;
  }
  return low;
}
__device__ inline std::int64_t row_of_value(const DeviceOffsets& offsets, std::int64_t k) {
  return row_of_value(offsets.rows, k, [&](std::int64_t row) { return offsets.begin(row); });
}

/// Input i of a node as offsets.
class DeviceOffsetsInput {
 public:
  DeviceOffsetsInput(const PrepareContext& c, int i, std::int64_t values)
      : input_(i),
        offsets_{nullptr, c.inputs[static_cast<std::size_t>(i)].shape[0] - 1, values, 0,
                 c.inputs[static_cast<std::size_t>(i)].dtype == DType::Int64} {}
  DeviceOffsets of(const KernelArgs& a) const {
    DeviceOffsets offsets = offsets_;
    offsets.at = a.inputs[input_];
    return offsets;
  }

 private:
  int input_;
  DeviceOffsets offsets_;
};

/// Where a row of values comes from: row `index` of from[part]; an index that is out of range: zeros.
struct RowSource {
  int part;
  std::int64_t index;
};
inline constexpr RowSource kNoSource{0, -1};

struct SourceRows {
  const void* at[2];
  std::int64_t count[2];
};

/// Row k of `out` becomes that which source(k) names; `lanes` of a warp, a power of two, move a row of
/// `units` units. source.each_row(r) is called once for each r in [0, source.rows()].
template <class Unit, class Source>
__global__ void __launch_bounds__(kThreads)
    move_rows_kernel(Unit* out, std::int64_t rows, std::int64_t units, int lanes, SourceRows from,
                     Source source, StepStatus* status, int op) {
  for (std::int64_t r = grid_index(); r <= source.rows(); r += grid_size()) source.each_row(r, status, op);
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  for (std::int64_t k = grid_index() / lanes; k < rows; k += grid_size() / lanes) {
    const RowSource place = source(k);
    const bool is_there = place.index >= 0 && place.index < from.count[place.part];
    const Unit* row = static_cast<const Unit*>(from.at[place.part]) + (is_there ? place.index : 0) * units;
#pragma unroll 4
    for (std::int64_t u = lane; u < units; u += lanes) out[k * units + u] = is_there ? row[u] : Unit{};
  }
}

/// `row`: bytes.
template <class Source>
void move_rows(const KernelArgs& a, void* out, std::int64_t rows, std::size_t row, const SourceRows& from,
               const Source& source) {
  with_row_unit(reinterpret_cast<std::uintptr_t>(out) | reinterpret_cast<std::uintptr_t>(from.at[0]) |
                    reinterpret_cast<std::uintptr_t>(from.at[1]) | row,
                [&]<class Unit>() {
                  const auto units = static_cast<std::int64_t>(row / sizeof(Unit));
                  const int lanes = static_cast<int>(
                      std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(units, 1, 32))));
                  launch(move_rows_kernel<Unit, Source>, blocks_for(rows * lanes), kThreads, 0, a.stream,
                         static_cast<Unit*>(out), rows, units, lanes, from, source, a.status, a.op);
                });
}

/// Ops that move elements of any size.
inline bool moves_on_device(const Node&, std::span<const OutputInfo> inputs) {
  return inputs[0].dtype != DType::String;
}

}  // namespace braid::cuda
