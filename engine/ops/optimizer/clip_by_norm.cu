// CUDA kernels of braid.RowsL2Loss and braid.ClipScale. The rows of a sparse gradient are grouped
// (common/cuda/row_grouping.h) and their gradients summed as an update does (row_runs.cuh), so that a row
// that is named often is no work of one warp. Each block adds up the squares of its rows, and one block those
// of all blocks; how many there are follows from the number of indices, so nothing depends on the order in
// which they run.
#include <algorithm>
#include <vector>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/clip_scale.h"
#include "engine/ops/optimizer/row_runs.cuh"

namespace braid {
namespace {

constexpr unsigned kMostBlocks = 1024;  // whose sums one block adds up

unsigned blocks_of(std::int64_t n) { return std::min(cuda::blocks_for(n), kMostBlocks); }

/// Block b takes the tiles b, b + blocks, ...
template <class V, int kPack>
__global__ void __launch_bounds__(cuda::kThreads)
    row_squares_kernel(const __grid_constant__ cuda::RowTables tables,
                       const __grid_constant__ cuda::RowRuns runs, float* squares) {  // [blocks]
  __shared__ cuda::RowTile tile;
  const int lane = static_cast<int>(threadIdx.x) & (runs.lanes - 1), groups = cuda::kThreads / runs.lanes;
  const cuda::RowTable& t = tables.at[0];
  float sum_of_squares = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cuda::kThreads; first < runs.n;
       first += cuda::grid_size()) {
    __syncthreads();  // the tile before has been read
    const int starts = cuda::load_tile(tile, tables, runs, first);
    for (int s = static_cast<int>(threadIdx.x) / runs.lanes; s < starts; s += groups) {
      const int at = tile.starts[s];
      if (tile.row(at) >= t.rows) continue;  // an index out of range is reported already
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

/// Half the sum of n numbers, by one block.
__global__ void __launch_bounds__(cuda::kThreads) half_sum_kernel(const float* squares, int n, float* out) {
  float sum = 0;
  cuda::add_strided<reduce::Sum>([&](std::int64_t i) { return squares[i]; }, threadIdx.x, n, cuda::kThreads,
                                 sum);
  sum = cuda::block_reduce<reduce::Sum>(sum);
  if (threadIdx.x == 0) *out = sum / 2;
}

std::vector<cuda::IndexedTable> table_of(const Node& node, std::span<const OutputInfo> inputs) {
  return {{node.attrs.require<std::int64_t>("rows"), inputs[0].shape[0], inputs[0].dtype == DType::Int64,
           node.attrs.get(kSkipNegative, false)}};
}

/// Squares of the rows whose sorted entries these are; `partials` is what RowRuns has.
template <class V, int kPack>
void add_squares(const KernelArgs& a, const cuda::RowTables& tables, const std::uint64_t* entries,
                 std::int64_t n, float* partials, float* squares) {
  const cuda::RowRuns runs = cuda::runs_of(entries, partials, n, tables.width, kPack);
  cuda::sum_long_runs<V, kPack>(a.stream, tables, runs);
  cuda::launch(row_squares_kernel<V, kPack>, blocks_of(n), cuda::kThreads, 0, a.stream, tables, runs,
               squares);
}

/// Calls f.operator()<V>() for the type of the values.
template <class F>
void with_values(DType type, const F& f) {
  if (type == DType::Float16) return f.template operator()<Float16>();
  if (type == DType::BFloat16) return f.template operator()<BFloat16>();
  f.template operator()<float>();
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0], rows = c.attr<std::int64_t>("rows", 0);
  const std::int64_t width = n == 0 ? 0 : c.inputs[1].shape.elements() / n;
  cuda::RowGrouping grouping(table_of(c.node, c.inputs));
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::size_t entries_bytes = aligned(static_cast<std::size_t>(n) * sizeof(std::uint64_t));
  const std::size_t squares_bytes = aligned(blocks_of(n) * sizeof(float));
  const auto partials = static_cast<std::size_t>((n + cuda::kShort - 1) / cuda::kShort * 2 * width);
  PreparedKernel kernel;
  kernel.scratch_bytes =
      entries_bytes + squares_bytes + std::max(grouping.scratch_bytes(), partials * sizeof(float));
  kernel.run = [=, type = c.inputs[1].dtype, grouping = std::move(grouping)](const KernelArgs& a) {
    auto* const entries = static_cast<std::uint64_t*>(a.scratch);
    auto* const squares = reinterpret_cast<float*>(static_cast<char*>(a.scratch) + entries_bytes);
    auto* const rest =
        reinterpret_cast<float*>(static_cast<char*>(a.scratch) + entries_bytes + squares_bytes);
    const bool any = n > 0 && width > 0;
    if (any) {
      grouping.run(a, 0, 1, rest, entries);
      cuda::RowTables tables;
      tables.count = 1;
      tables.width = width;
      tables.at[0] = {.weights = nullptr,
                      .slots = {},
                      .values = a.inputs[1],
                      .bags = nullptr,
                      .value_weights = nullptr,
                      .rows = static_cast<std::int32_t>(rows),
                      .first_row = 0,
                      .first_entry = 0,
                      .stride = static_cast<std::int32_t>(width),
                      .by_hot = cuda::Divider(1)};
      const bool packed = width % 4 == 0 && cuda::is_aligned16(a.inputs[1]);
      with_values(type, [&]<class V>() {
        (packed ? add_squares<V, 4> : add_squares<V, 1>)(a, tables, entries, n, rest, squares);
      });
    }
    cuda::launch(half_sum_kernel, 1, cuda::kThreads, 0, a.stream, squares,
                 any ? static_cast<int>(blocks_of(n)) : 0, a.out<float>(0));
  };
  return kernel;
}

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
  cuda_takes_halves({"braid.RowsL2Loss"});
  registry.add_cuda("braid.ClipScale", prepare_scale);
}

}  // namespace braid
