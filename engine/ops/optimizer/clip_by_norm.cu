// CUDA kernels of braid.RowsL2Loss and braid.ClipScale. The rows of a sparse gradient are grouped
// (common/cuda/row_grouping.h); a warp sums the gradients of each row that is named, in the order of their
// positions, and one block adds up the squares, so nothing depends on the order in which blocks run.
#include <algorithm>
#include <vector>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/clip_scale.h"

namespace braid {
namespace {

constexpr int kWarp = 32;

/// The warp of an entry that is the first of its row's run writes the row's sum of squares, the others 0.
__global__ void row_squares(const std::uint64_t* entries,  // [n] row << 32 | position, sorted
                            const float* values,           // [n, width]
                            float* squares,                // [n]
                            std::int64_t n, std::int64_t width, std::int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t e = cuda::grid_index() / kWarp; e < n; e += cuda::grid_size() / kWarp) {
    const std::uint64_t row = entries[e] >> 32;
    float sum_of_squares = 0;
    const bool is_first = e == 0 || entries[e - 1] >> 32 != row;
    if (is_first && row < static_cast<std::uint64_t>(rows))  // an index out of range is reported already
      for (std::int64_t column = lane; column < width; column += kWarp) {
        float sum = 0;
        for (std::int64_t at = e; at < n && entries[at] >> 32 == row; ++at)
          sum += values[static_cast<std::int64_t>(entries[at] & 0xffffffffU) * width + column];
        sum_of_squares += sum * sum;
      }
    for (int other = kWarp / 2; other > 0; other /= 2)
      sum_of_squares += __shfl_xor_sync(0xffffffffU, sum_of_squares, other);
    if (lane == 0) squares[e] = sum_of_squares;
  }
}

/// Half the sum of n numbers, by one block.
__global__ void __launch_bounds__(cuda::kThreads) half_sum(const float* squares, std::int64_t n, float* out) {
  __shared__ float sums[cuda::kThreads];
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += cuda::kThreads) sum += squares[i];
  sums[threadIdx.x] = sum;
  for (int other = cuda::kThreads / 2; other > 0; other /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < other) sums[threadIdx.x] += sums[threadIdx.x + other];
  }
  if (threadIdx.x == 0) *out = sums[0] / 2;
}

std::vector<cuda::IndexedTable> table_of(const Node& node, std::span<const OutputInfo> inputs) {
  return {{node.attrs.require<std::int64_t>("rows"), inputs[0].shape[0], inputs[0].dtype == DType::Int64,
           node.attrs.get(kSkipNegative, false)}};
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0], rows = c.attr<std::int64_t>("rows", 0);
  const std::int64_t width = n == 0 ? 0 : c.inputs[1].shape.elements() / n;
  cuda::RowGrouping grouping(table_of(c.node, c.inputs));
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::size_t entries_bytes = aligned(static_cast<std::size_t>(n) * sizeof(std::uint64_t));
  const std::size_t squares_bytes = aligned(static_cast<std::size_t>(n) * sizeof(float));
  PreparedKernel kernel;
  kernel.scratch_bytes = entries_bytes + squares_bytes + grouping.scratch_bytes();
  kernel.run = [=, grouping = std::move(grouping)](const KernelArgs& a) {
    auto* const entries = static_cast<std::uint64_t*>(a.scratch);
    auto* const squares = reinterpret_cast<float*>(static_cast<char*>(a.scratch) + entries_bytes);
    if (n > 0) {
      grouping.run(a, 0, 1, static_cast<char*>(a.scratch) + entries_bytes + squares_bytes, entries);
      cuda::launch(row_squares, cuda::blocks_for(n * kWarp), cuda::kThreads, 0, a.stream, entries,
                   a.in<float>(1), squares, n, width, rows);
    }
    cuda::launch(half_sum, 1, cuda::kThreads, 0, a.stream, squares, n, a.out<float>(0));
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
  registry.add_cuda("braid.ClipScale", prepare_scale);
}

}  // namespace braid
