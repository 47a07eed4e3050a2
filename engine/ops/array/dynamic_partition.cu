// CUDA kernels of DynamicPartition, its gradient and DynamicStitch. Partitions are sorted with their
// positions (common/cuda/index_groups.h); how many rows each has is known, so that the place of an entry
// among the sorted ones says which row of its partition it is. Of the rows that a stitch puts to one place
// the last one is found by a maximum of positions. Rows are moved in units of up to 16 bytes.
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/index_groups.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/unit.cuh"

namespace braid {
namespace {

constexpr int kMostParts = 64;

/// The parts' rows, counted through all of them: part p has rows [first[p], first[p + 1]).
struct Parts {
  int count = 0;
  std::int64_t first[kMostParts + 1] = {};

  void add(std::int64_t rows) {
    first[count + 1] = first[count] + rows;
    ++count;
  }
  std::int64_t rows() const { return first[count]; }
  /// The part of a row that there is.
  __device__ int part_of(std::int64_t row) const {
    int low = 0;  // the last part that begins there or before: an empty one begins where the next does
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (first[middle] <= row ? low : high) = middle;
    }
    return low;
  }
};

struct Pointers {
  void* at[kMostParts];

  /// `alignment` gets their bits.
  Pointers(void* const* from, int count, std::uint64_t& alignment) : at{} {
    for (int p = 0; p < count; ++p) {
      at[p] = from[p];
      alignment |= reinterpret_cast<std::uintptr_t>(from[p]);
    }
  }
};

/// Rows in units.
struct Rows {
  std::int64_t count, width;
  cuda::Divider by_width;

  Rows(std::int64_t rows, std::int64_t units)
      : count(rows), width(units), by_width(units < cuda::kDividerLimit ? units : 1) {}
  std::int64_t units() const { return count * width; }
  __device__ std::int64_t row_of(std::int64_t unit) const {
    return count * width < cuda::kDividerLimit ? by_width.quotient(static_cast<std::uint32_t>(unit))
                                               : unit / width;
  }
};

// ------------------------------------------------------------------------------------------------- partition

__global__ void partition_entries_kernel(const std::int32_t* partitions, std::uint64_t* entries,
                                         std::int64_t n, int count, StepStatus* status, int op) {
  for (std::int64_t k = cuda::grid_index(); k < n; k += cuda::grid_size()) {
    std::int64_t p = partitions[k];
    if (p < 0 || p >= count) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, p, count);
      p = count;
    }
    entries[k] = static_cast<std::uint64_t>(p) << 32 | static_cast<std::uint64_t>(k);
  }
}

/// Row k of `whole` to or from row s - first[p] of part p, where entry s is (p, k).
template <class Unit, bool kToParts>
__global__ void move_rows_kernel(Unit* whole, const __grid_constant__ Pointers pointers,
                                 const __grid_constant__ Parts parts, const std::uint64_t* entries,
                                 Rows rows) {
  for (std::int64_t i = cuda::grid_index(); i < rows.count * rows.width; i += cuda::grid_size()) {
    const std::int64_t s = rows.row_of(i), column = i - s * rows.width;
    const auto p = static_cast<std::int64_t>(entries[s] >> 32);
    const auto k = static_cast<std::int64_t>(entries[s] & 0xffffffffU);
    if (p >= parts.count || s < parts.first[p] || s >= parts.first[p + 1]) continue;
    Unit& in_part = static_cast<Unit*>(pointers.at[p])[(s - parts.first[p]) * rows.width + column];
    Unit& in_whole = whole[k * rows.width + column];
    if (kToParts)
      in_part = in_whole;
    else
      in_whole = in_part;
  }
}

/// `whole` are n rows, each of one of the parts, which are tensors from `first` on of `tensors`.
template <bool kToParts>
PreparedKernel prepare_move(const PrepareContext& c, std::span<const OutputInfo> tensors, const Shape& ids,
                            const OutputInfo& whole) {
  const std::int64_t n = ids.elements();
  const std::int64_t row_bytes =
      n == 0 ? 0 : whole.shape.elements() / n * static_cast<std::int64_t>(dtype_size(whole.dtype));
  Parts parts;
  for (const OutputInfo& part : tensors) parts.add(part.shape[0]);
  const cuda::IndexSort sort(n, parts.count);
  PreparedKernel kernel;
  kernel.scratch_bytes = sort.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    if (n == 0) return;
    const auto* partitions = a.in<std::int32_t>(kToParts ? 1 : 0);
    cuda::launch(partition_entries_kernel, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, partitions,
                 sort.unsorted(a.scratch), n, parts.count, a.status, a.op);
    if (row_bytes == 0) return;
    const std::uint64_t* entries = sort.sort(a.scratch, a.stream);
    void* const rows_of = kToParts ? a.inputs[0] : a.outputs[0];
    auto alignment = static_cast<std::uint64_t>(row_bytes) | reinterpret_cast<std::uintptr_t>(rows_of);
    const Pointers pointers(kToParts ? a.outputs : a.inputs + 2, parts.count, alignment);
    cuda::with_row_unit(alignment, [&]<class Unit>() {
      const Rows rows(n, row_bytes / static_cast<std::int64_t>(sizeof(Unit)));
      cuda::launch(move_rows_kernel<Unit, kToParts>, cuda::blocks_for(rows.units()), cuda::kThreads, 0,
                   a.stream, static_cast<Unit*>(rows_of), pointers, parts, entries, rows);
    });
  };
  return kernel;
}

PreparedKernel prepare_partition(const PrepareContext& c) {
  return prepare_move<true>(c, c.outputs, c.inputs[1].shape, c.inputs[0]);
}
PreparedKernel prepare_partition_grad(const PrepareContext& c) {
  return prepare_move<false>(c, c.inputs.subspan(2), c.inputs[0].shape, c.outputs[0]);
}

// ---------------------------------------------------------------------------------------------------- stitch

/// winners[index] = 1 + the last position that has it, counted through the parts; it was 0.
__global__ void find_last_kernel(const __grid_constant__ Pointers indices,
                                 const __grid_constant__ Parts parts, std::int64_t n,
                                 unsigned long long* winners, std::int64_t rows, StepStatus* status, int op) {
  for (std::int64_t k = cuda::grid_index(); k < n; k += cuda::grid_size()) {
    const int p = parts.part_of(k);
    const std::int64_t index = static_cast<const std::int32_t*>(indices.at[p])[k - parts.first[p]];
    if (index >= 0 && index < rows)
      atomicMax(winners + index, static_cast<unsigned long long>(k) + 1);
    else
      cuda::report(status, op, StatusCode::IndexOutOfRange, index, rows);
  }
}

template <class Unit>
__global__ void stitch_kernel(const __grid_constant__ Pointers data, const __grid_constant__ Parts parts,
                              const unsigned long long* winners, Unit* out, Rows rows) {
  for (std::int64_t i = cuda::grid_index(); i < rows.count * rows.width; i += cuda::grid_size()) {
    const std::int64_t row = rows.row_of(i);
    const auto k = static_cast<std::int64_t>(winners[row]) - 1;
    Unit unit{};
    if (k >= 0) {
      const int p = parts.part_of(k);
      unit = static_cast<const Unit*>(data.at[p])[(k - parts.first[p]) * rows.width + (i - row * rows.width)];
    }
    out[i] = unit;
  }
}

PreparedKernel prepare_stitch(const PrepareContext& c) {
  const auto count = static_cast<int>(c.inputs.size() / 2);
  const Shape& out = c.outputs[0].shape;
  const std::int64_t rows = out[0];
  const std::int64_t row_bytes =
      rows == 0 ? 0 : out.elements() / rows * static_cast<std::int64_t>(dtype_size(c.outputs[0].dtype));
  Parts parts;
  for (int m = 0; m < count; ++m) parts.add(c.inputs[static_cast<std::size_t>(m)].shape.elements());
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(rows) * sizeof(unsigned long long);
  kernel.run = [=, n = parts.rows(), device = c.accelerator](const KernelArgs& a) {
    if (row_bytes == 0) return;
    auto* winners = static_cast<unsigned long long*>(a.scratch);
    device->fill_zero(winners, static_cast<std::uint64_t>(rows) * sizeof(unsigned long long), a.stream);
    std::uint64_t ignored = 0;
    cuda::launch(find_last_kernel, cuda::blocks_for(n), cuda::kThreads, 0, a.stream,
                 Pointers(a.inputs, count, ignored), parts, n, winners, rows, a.status, a.op);
    auto alignment = static_cast<std::uint64_t>(row_bytes) | reinterpret_cast<std::uintptr_t>(a.outputs[0]);
    const Pointers data(a.inputs + count, count, alignment);
    cuda::with_row_unit(alignment, [&]<class Unit>() {
      const Rows units(rows, row_bytes / static_cast<std::int64_t>(sizeof(Unit)));
      cuda::launch(stitch_kernel<Unit>, cuda::blocks_for(units.units()), cuda::kThreads, 0, a.stream, data,
                   parts, winners, a.out<Unit>(0), units);
    });
  };
  return kernel;
}

/// As many as kernels take, and few enough positions for the sort.
bool supports(std::size_t parts, const OutputInfo& data, std::int64_t positions) {
  return parts <= kMostParts && dtype_size(data.dtype) != 0 && positions < cuda::kDividerLimit - 1;
}

}  // namespace

void register_dynamic_partition_cuda(OpRegistry& registry) {
  registry.add_cuda("DynamicPartition", prepare_partition,
                    [](const Node& node, std::span<const OutputInfo> inputs) {
                      return supports(node.outputs.size(), inputs[0], inputs[1].shape.elements());
                    });
  registry.add_cuda("braid.DynamicPartitionGrad", prepare_partition_grad,
                    [](const Node&, std::span<const OutputInfo> inputs) {
                      return supports(inputs.size() - 2, inputs[1], inputs[0].shape.elements());
                    });
  for (const char* name : {"DynamicStitch", "ParallelDynamicStitch"})
    registry.add_cuda(name, prepare_stitch, [](const Node&, std::span<const OutputInfo> inputs) {
      return supports(inputs.size() / 2, inputs[inputs.size() / 2], 0);
    });
}

}  // namespace braid
