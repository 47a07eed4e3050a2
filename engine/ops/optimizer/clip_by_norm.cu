// CUDA kernels of braid.L2LossMany, braid.RowsL2Loss, braid.RowsL2LossMany and braid.ClipScale. The rows of
// sparse gradients are grouped (common/cuda/row_grouping.h) and summed as an update does (row_runs.cuh), so
// that a row that is named often is no work of one warp. Each block adds up squares, and one block those of
// all blocks; how many there are follows from sizes alone, so nothing depends on the order in which they run.
#include <algorithm>
#include <vector>

#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/optimizer/clip_scale.h"
#include "engine/ops/optimizer/row_tile.cuh"

namespace braid {
namespace {

constexpr unsigned kMostRowBlocks = 1024;  // of tables of one width

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// ------------------------------------------------------------------------------------------------- tensors

constexpr std::int64_t kTile = 8192;  // elements of a block
constexpr int kMostTensors = 120;     // a kernel's arguments are 4 KiB

struct SquaredTensor {
  const float* x;
  std::int64_t elements;
  std::int32_t first_block;
};

struct SquaredTensors {
  int count = 0;
  SquaredTensor at[kMostTensors];
};
static_assert(sizeof(SquaredTensors) + 64 <= 4096);

__global__ void __launch_bounds__(cuda::kThreads)
    squares_kernel(const __grid_constant__ SquaredTensors tensors, float* squares) {  // [blocks]
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const SquaredTensor& t = cuda::part_of_block(tensors, block);
  const std::int64_t begin = static_cast<std::int64_t>(block - t.first_block) * kTile;
  const std::int64_t end = min(begin + kTile, t.elements);
  float sum = 0;
  const auto square = [&](std::int64_t i) { return t.x[i] * t.x[i]; };
  cuda::add_strided<reduce::Sum>(square, begin + threadIdx.x, end, cuda::kThreads, sum);
  sum = cuda::block_reduce<reduce::Sum>(sum);
  if (threadIdx.x == 0) squares[block] = sum;
}

/// Half the sum of n numbers, by one block.
__global__ void __launch_bounds__(cuda::kThreads) half_sum_kernel(const float* squares, int n, float* out) {
  float sum = 0;
  cuda::add_strided<reduce::Sum>([&](std::int64_t i) { return squares[i]; }, threadIdx.x, n, cuda::kThreads,
                                 sum);
  sum = cuda::block_reduce<reduce::Sum>(sum);
  if (threadIdx.x == 0) *out = sum / 2;
}

PreparedKernel prepare_tensors(const PrepareContext& c) {
  std::vector<std::int64_t> elements;
  std::int64_t blocks = 0;
  for (const OutputInfo& input : c.inputs) {
    elements.push_back(input.shape.elements());
    blocks += (elements.back() + kTile - 1) / kTile;
  }
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(blocks) * sizeof(float);
  kernel.run = [=, elements = std::move(elements)](const KernelArgs& a) {
    auto* const squares = static_cast<float*>(a.scratch);
    SquaredTensors tensors;
    std::int64_t before = 0, own = 0;  // blocks
    const auto flush = [&] {
      if (own != 0)
        cuda::launch(squares_kernel, static_cast<unsigned>(own), cuda::kThreads, 0, a.stream, tensors,
                     squares + before);
      before += own;
      own = tensors.count = 0;
    };
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (elements[i] == 0) continue;
      tensors.at[tensors.count++] = {a.in<float>(static_cast<int>(i)), elements[i],
                                     static_cast<std::int32_t>(own)};
      own += (elements[i] + kTile - 1) / kTile;
      if (tensors.count == kMostTensors) flush();
    }
    flush();
    cuda::launch(half_sum_kernel, 1, cuda::kThreads, 0, a.stream, squares, static_cast<int>(blocks),
                 a.out<float>(0));
  };
  return kernel;
}

// ---------------------------------------------------------------------------------------------------- rows

/// Block b takes the tiles b, b + blocks, ...
template <class V, int kPack>
__global__ void __launch_bounds__(cuda::kThreads)
    row_squares_kernel(const __grid_constant__ cuda::RowTables tables,
                       const __grid_constant__ cuda::RowRuns runs, float* squares) {  // [blocks]
  __shared__ cuda::RowTile tile;
  const int lane = static_cast<int>(threadIdx.x) & (runs.lanes - 1), groups = cuda::kThreads / runs.lanes;
  float sum_of_squares = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cuda::kThreads; first < runs.n;
       first += cuda::grid_size()) {
    __syncthreads();  // the tile before has been read
    const int starts = cuda::load_tile(tile, tables, runs, first);
    for (int s = static_cast<int>(threadIdx.x) / runs.lanes; s < starts; s += groups) {
      const int at = tile.starts[s];
      const std::int64_t row = tile.row(at);
      const cuda::RowTable& t = tables.at[tables.index_of(row, tile.first_table, tile.last_table + 1)];
      if (row - t.first_row >= t.rows) continue;  // an index out of range is reported already
      for (std::int64_t column = lane * kPack; column < tables.width; column += runs.lanes * kPack) {
        const auto sum = cuda::sum_of_run<V, kPack>(tile, at, t, runs, first + at, tables.width, column);
#pragma unroll
        for (int i = 0; i < kPack; ++i) sum_of_squares += sum.at[i] * sum.at[i];
      }
    }
  }
  sum_of_squares = cuda::block_reduce<reduce::Sum>(sum_of_squares);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum_of_squares;
}

/// Calls f.operator()<V>() for the type of the values.
template <class F>
void with_values(DType type, const F& f) {
  if (type == DType::Float16) return f.template operator()<Float16>();
  if (type == DType::BFloat16) return f.template operator()<BFloat16>();
  f.template operator()<float>();
}

/// Tables of one width that follow one another.
struct SquaredRows {
  int first, count = 0;
  EntryBase base;  // of the first
  std::int64_t width = 0, entries = 0;

  unsigned blocks() const {
    return entries == 0 || width == 0 ? 0 : std::min(cuda::blocks_for(entries), kMostRowBlocks);
  }
  std::size_t partials_bytes() const {
    return static_cast<std::size_t>((entries + cuda::kShort - 1) / cuda::kShort * 2 * width) * sizeof(float);
  }
};

/// All tables of an op. Values of table t are input first_values + t.
class RowsSquares {
 public:
  RowsSquares(const PrepareContext& c, std::vector<std::int64_t> rows, int first_values)
      : rows_(std::move(rows)), first_values_(first_values) {
    EntryBase base;
    for (int t = 0; t < static_cast<int>(rows_.size()); ++t) {
      const OutputInfo& values = c.inputs[static_cast<std::size_t>(first_values + t)];
      const std::int64_t n = values.shape[0], width = n == 0 ? 0 : values.shape.elements() / n;
      type_ = values.dtype;
      n_.push_back(n);
      if (batches_.empty() || batches_.back().width != width || batches_.back().count == cuda::kMostTables)
        batches_.push_back({.first = t, .base = base, .width = width});
      ++batches_.back().count;
      batches_.back().entries += n;
      base.pass(rows_[static_cast<std::size_t>(t)], n);
    }
    for (const SquaredRows& batch : batches_) {
      blocks_ += batch.blocks();
      partials_bytes_ = std::max(partials_bytes_, batch.partials_bytes());
    }
  }

  std::size_t scratch_bytes() const { return aligned(blocks_ * sizeof(float)) + partials_bytes_; }

  /// `entries` are those of all tables.
  void run(const KernelArgs& a, const std::uint64_t* entries, void* scratch) const {
    auto* const squares = static_cast<float*>(scratch);
    auto* const partials =
        reinterpret_cast<float*>(static_cast<char*>(scratch) + aligned(blocks_ * sizeof(float)));
    unsigned before = 0;
    for (const SquaredRows& batch : batches_) {
      if (batch.blocks() == 0) continue;
      with_values(type_, [&]<class V>() {
        const cuda::RowTables tables = tables_of(batch, a);
        const bool packed = batch.width % 4 == 0 &&
                            std::all_of(tables.at, tables.at + tables.count,
                                        [](const auto& table) { return cuda::is_aligned16(table.values); });
        (packed ? add<V, 4> : add<V, 1>)(a, batch, tables, entries + batch.base.entry, partials,
                                         squares + before);
      });
      before += batch.blocks();
    }
    cuda::launch(half_sum_kernel, 1, cuda::kThreads, 0, a.stream, squares, static_cast<int>(blocks_),
                 a.out<float>(0));
  }

 private:
  cuda::RowTables tables_of(const SquaredRows& batch, const KernelArgs& a) const {
    cuda::RowTables tables;
    tables.width = batch.width;
    EntryBase base = batch.base;
    for (int t = batch.first; t < batch.first + batch.count; ++t) {
      const std::int64_t rows = rows_[static_cast<std::size_t>(t)];
      tables.at[tables.count++] = {.weights = nullptr,
                                   .slots = {},
                                   .values = a.inputs[first_values_ + t],
                                   .bags = nullptr,
                                   .value_weights = nullptr,
                                   .rows = static_cast<std::int32_t>(rows),
                                   .first_row = static_cast<std::int32_t>(base.row),
                                   .first_entry = static_cast<std::int32_t>(base.entry),
                                   .stride = static_cast<std::int32_t>(batch.width),
                                   .by_hot = cuda::Divider(1)};
      base.pass(rows, n_[static_cast<std::size_t>(t)]);
    }
    return tables;
  }

  template <class V, int kPack>
  static void add(const KernelArgs& a, const SquaredRows& batch, const cuda::RowTables& tables,
                  const std::uint64_t* entries, float* partials, float* squares) {
    const cuda::RowRuns runs = cuda::runs_of(entries, partials, batch.entries, batch.width, kPack);
    cuda::sum_long_runs<V, kPack>(a.stream, tables, runs);
    cuda::launch(row_squares_kernel<V, kPack>, batch.blocks(), cuda::kThreads, 0, a.stream, tables, runs,
                 squares);
  }

  std::vector<std::int64_t> rows_, n_;
  int first_values_;
  DType type_ = DType::Float32;
  std::vector<SquaredRows> batches_;
  unsigned blocks_ = 0;
  std::size_t partials_bytes_ = 0;
};

std::vector<cuda::IndexedTable> table_of(const Node& node, std::span<const OutputInfo> inputs) {
  return {{node.attrs.require<std::int64_t>("rows"), inputs[0].shape[0], inputs[0].dtype == DType::Int64,
           node.attrs.get(kSkipNegative, false)}};
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  cuda::RowGrouping grouping(table_of(c.node, c.inputs));
  RowsSquares squares(c, {c.attr<std::int64_t>("rows", 0)}, 1);
  const std::size_t entries_bytes =
      aligned(static_cast<std::size_t>(c.inputs[0].shape[0]) * sizeof(std::uint64_t));
  PreparedKernel kernel;
  kernel.scratch_bytes = entries_bytes + std::max(grouping.scratch_bytes(), squares.scratch_bytes());
  kernel.run = [=, grouping = std::move(grouping), squares = std::move(squares)](const KernelArgs& a) {
    auto* const entries = static_cast<std::uint64_t*>(a.scratch);
    void* const rest = static_cast<char*>(a.scratch) + entries_bytes;
    grouping.run(a, 0, 1, rest, entries);
    squares.run(a, entries, rest);
  };
  return kernel;
}

PreparedKernel prepare_many_rows(const PrepareContext& c) {
  RowsSquares squares(c, c.attr<std::vector<std::int64_t>>("rows", {}), 0);
  PreparedKernel kernel;
  kernel.scratch_bytes = squares.scratch_bytes();
  kernel.run = [entries = static_cast<int>(c.inputs.size()) - 1, squares = std::move(squares)](
                   const KernelArgs& a) { squares.run(a, a.in<std::uint64_t>(entries), a.scratch); };
  return kernel;
}

// --------------------------------------------------------------------------------------------------- scale

constexpr int kMostHalves = 256;  // of one launch

struct Halves {
  int count = 0;
  const float* at[kMostHalves];
};

/// Adds the halves to what is in `out` already, but for the first launch, and ends with the last.
__global__ void clip_scale_kernel(const __grid_constant__ Halves halves, const StepParams* params, float most,
                                  bool scaled, bool is_first, bool is_last, float* out) {
  float sum = is_first ? 0.0F : *out;
  for (int i = 0; i < halves.count; ++i) sum += *halves.at[i];
  const float norm = (scaled ? params->grad_scale : 1.0F) * sqrtf(2 * sum);
  *out = is_last ? clip_scale(norm, most) : sum;
}

PreparedKernel prepare_scale(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [count = static_cast<int>(c.inputs.size()),
                most = static_cast<float>(c.attr<double>("clip_norm", 0)),
                scaled = c.attr<bool>("scaled", false)](const KernelArgs& a) {
    for (int first = 0; first < count; first += kMostHalves) {
      Halves halves;
      halves.count = std::min(kMostHalves, count - first);
      for (int i = 0; i < halves.count; ++i) halves.at[i] = a.in<float>(first + i);
      cuda::launch(clip_scale_kernel, 1, 1, 0, a.stream, halves, a.params, most, scaled, first == 0,
                   first + kMostHalves >= count, a.out<float>(0));
    }
  };
  return kernel;
}

}  // namespace

void register_clip_by_norm_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.RowsL2Loss", prepare_rows,
                    [](const Node& node, std::span<const OutputInfo> inputs) {
                      return cuda::fits_entries(table_of(node, inputs));
                    });
  registry.add_cuda("braid.RowsL2LossMany", prepare_many_rows);
  cuda_takes_halves({"braid.RowsL2Loss", "braid.RowsL2LossMany"});
  registry.add_cuda("braid.L2LossMany", prepare_tensors);
  registry.add_cuda("braid.ClipScale", prepare_scale);
}

}  // namespace braid
