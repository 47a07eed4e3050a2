// CUDA kernels of braid.GatherMany: one launch for up to kMost tables, whose addresses and sizes are the
// kernel's argument. A block moves kTile units of one table's output; a unit is 16 bytes of it where all
// tables are aligned so. A row whose index is out of range is reported and zeroed. Rows of float32 become
// halves on their way.
#include "engine/ops/fused/gather_many.h"

#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"

namespace braid {
namespace {

constexpr int kTile = 4 * cuda::kThreads;
constexpr int kMost = 48;  // a kernel's arguments are 4 KiB

struct Table {
  const void* rows;
  const void* indices;
  void* out;
  std::int64_t row_count;
  std::int64_t units;  // of the output
  std::int64_t width;  // of a row, in units
  cuda::Divider by_width;
  std::int32_t first_block;
  bool is_index64;
};

struct Tables {
  int count = 0;
  Table at[kMost];
};
static_assert(sizeof(Tables) + 32 <= 4096);

/// A unit as it lies in the table, and as it is written.
template <class T>
struct Same {
  using From = T;
  using To = T;
  __device__ static T of(const T& x) { return x; }
};
template <class Half, int kCount>
struct Rounded {
  using From = cuda::Pack<float, kCount>;
  using To = cuda::Pack<Half, kCount>;
  __device__ static To of(const From& x) {
    To y;
#pragma unroll
    for (int i = 0; i < kCount; ++i) y.at[i] = static_cast<Half>(x.at[i]);
    return y;
  }
};

template <class Unit>
__global__ void gather_kernel(const __grid_constant__ Tables tables, StepStatus* status, int op) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const Table& t = cuda::part_of_block(tables, block);
  const std::int64_t begin = static_cast<std::int64_t>(block - t.first_block) * kTile;
  const std::int64_t end = begin + kTile < t.units ? begin + kTile : t.units;
  const bool narrow = t.units < cuda::kDividerLimit;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x; i < end; i += cuda::kThreads) {
    const std::int64_t k =
        narrow ? static_cast<std::int64_t>(t.by_width.quotient(static_cast<std::uint32_t>(i))) : i / t.width;
    const std::int64_t index = t.is_index64 ? static_cast<const std::int64_t*>(t.indices)[k]
                                            : static_cast<const std::int32_t*>(t.indices)[k];
    typename Unit::To value{};
    if (index >= 0 && index < t.row_count)
      value = Unit::of(static_cast<const typename Unit::From*>(t.rows)[index * t.width + (i - k * t.width)]);
    else
      cuda::report(status, op, StatusCode::IndexOutOfRange, index, t.row_count);
    static_cast<typename Unit::To*>(t.out)[i] = value;
  }
}

/// What does not change from run to run.
struct Size {
  std::int64_t rows, n, row_bytes;  // of the output
  bool is_index64;
};

template <class Unit>
void gather(const std::vector<Size>& sizes, const KernelArgs& a) {
  Tables tables;
  std::int32_t blocks = 0;
  const auto flush = [&] {
    if (blocks != 0)
      cuda::launch(gather_kernel<Unit>, static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream, tables,
                   a.status, a.op);
    tables.count = 0;
    blocks = 0;
  };
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::int64_t width = sizes[k].row_bytes / static_cast<std::int64_t>(sizeof(typename Unit::To));
    const std::int64_t units = sizes[k].n * width;
    if (units == 0) continue;
    tables.at[tables.count++] = {.rows = a.inputs[2 * k],
                                 .indices = a.inputs[2 * k + 1],
                                 .out = a.outputs[k],
                                 .row_count = sizes[k].rows,
                                 .units = units,
                                 .width = width,
                                 .by_width = cuda::Divider(units < cuda::kDividerLimit ? width : 1),
                                 .first_block = blocks,
                                 .is_index64 = sizes[k].is_index64};
    blocks += static_cast<std::int32_t>((units + kTile - 1) / kTile);
    if (tables.count == kMost) flush();
  }
  flush();
}

template <class Half>
void gather_rounded(const std::vector<Size>& sizes, const KernelArgs& a, bool is_aligned) {
  if (is_aligned)
    gather<Rounded<Half, 8>>(sizes, a);
  else
    gather<Rounded<Half, 1>>(sizes, a);
}

}  // namespace

PreparedKernel cuda::prepare_gathers(const PrepareContext& c) {
  std::vector<Size> sizes;
  const DType dtype = c.outputs[0].dtype;
  for (std::size_t i = 0; i < c.inputs.size(); i += 2) {
    const Shape& table = c.inputs[i].shape;
    auto row_bytes = static_cast<std::int64_t>(dtype_size(dtype));
    for (int axis = 1; axis < table.rank(); ++axis) row_bytes *= table[axis];
    sizes.push_back(
        {table[0], c.inputs[i + 1].shape.elements(), row_bytes, c.inputs[i + 1].dtype == DType::Int64});
  }
  const DType rounded = is_half(dtype) && c.inputs[0].dtype == DType::Float32 ? dtype : DType::Invalid;
  PreparedKernel kernel;
  kernel.run = [sizes = std::move(sizes), rounded](const KernelArgs& a) {
    std::uint64_t alignment = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k)
      alignment |= static_cast<std::uint64_t>(sizes[k].row_bytes) |
                   reinterpret_cast<std::uintptr_t>(a.inputs[2 * k]) |
                   reinterpret_cast<std::uintptr_t>(a.outputs[k]);
    if (rounded == DType::BFloat16)
      gather_rounded<BFloat16>(sizes, a, alignment % 16 == 0);
    else if (rounded == DType::Float16)
      gather_rounded<Float16>(sizes, a, alignment % 16 == 0);
    else if (alignment % 16 == 0)
      gather<Same<uint4>>(sizes, a);
    else if (alignment % 4 == 0)
      gather<Same<std::uint32_t>>(sizes, a);
    else
      gather<Same<std::uint8_t>>(sizes, a);
  };
  return kernel;
}

void register_gather_many_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.GatherMany", cuda::prepare_gathers,
                    [](const Node& node, std::span<const OutputInfo>) {
                      return dtype_size(node.attrs.get<DType>("dtype", DType::Invalid)) != 0;
                    });
  cuda_takes_halves({"braid.GatherMany"});
}

}  // namespace braid
