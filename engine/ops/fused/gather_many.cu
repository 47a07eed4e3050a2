// CUDA kernel of braid.GatherMany: one launch for up to kMost tables, whose addresses and sizes are the
// kernel's argument. A block moves kTile units of one table's output; a unit is 16 bytes where all tables are
// aligned so. A row whose index is out of range is reported and zeroed.
#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"

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
    Unit value{};
    if (index >= 0 && index < t.row_count)
      value = static_cast<const Unit*>(t.rows)[index * t.width + (i - k * t.width)];
    else
      cuda::report(status, op, StatusCode::IndexOutOfRange, index, t.row_count);
    static_cast<Unit*>(t.out)[i] = value;
  }
}

/// What does not change from run to run.
struct Size {
  std::int64_t rows, n, row_bytes;
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
    const std::int64_t width = sizes[k].row_bytes / static_cast<std::int64_t>(sizeof(Unit));
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

PreparedKernel prepare(const PrepareContext& c) {
  std::vector<Size> sizes;
  for (std::size_t i = 0; i < c.inputs.size(); i += 2) {
    const Shape& table = c.inputs[i].shape;
    auto row_bytes = static_cast<std::int64_t>(dtype_size(c.outputs[i / 2].dtype));
    for (int axis = 1; axis < table.rank(); ++axis) row_bytes *= table[axis];
    sizes.push_back(
        {table[0], c.inputs[i + 1].shape.elements(), row_bytes, c.inputs[i + 1].dtype == DType::Int64});
  }
  PreparedKernel kernel;
  kernel.run = [sizes = std::move(sizes)](const KernelArgs& a) {
    std::uint64_t alignment = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k)
      alignment |= static_cast<std::uint64_t>(sizes[k].row_bytes) |
                   reinterpret_cast<std::uintptr_t>(a.inputs[2 * k]) |
                   reinterpret_cast<std::uintptr_t>(a.outputs[k]);
    if (alignment % 16 == 0)
      gather<uint4>(sizes, a);
    else if (alignment % 4 == 0)
      gather<std::uint32_t>(sizes, a);
    else
      gather<std::uint8_t>(sizes, a);
  };
  return kernel;
}

}  // namespace

void register_gather_many_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.GatherMany", prepare, [](const Node& node, std::span<const OutputInfo>) {
    return dtype_size(node.attrs.get<DType>("dtype", DType::Invalid)) != 0;
  });
}

}  // namespace braid
