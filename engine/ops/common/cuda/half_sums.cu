#include "engine/ops/common/cuda/half_sums.h"

#include <algorithm>
#include <optional>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/widened.h"
#include "engine/ops/common/half.h"

namespace braid::cuda {
namespace {

constexpr int kAcross = 16, kDown = kThreads / kAcross;
constexpr int kUnroll = 4;                // rows that a thread has in flight
constexpr std::int64_t kBlocks = 528;     // four for each of a large device's processors
constexpr std::int64_t kMostChunks = 64;  // whose sums are added again

/// What is summed: [outer, m, n] over m.
struct Sizes {
  std::int64_t outer, m, n;
};

/// A block's tile of columns, from `column` of its thread on, over rows [first, last).
template <class S, int V>
__device__ void add_tile(const S* x, float* sums, std::int64_t first, std::int64_t last, std::int64_t n,
                         float divisor) {
  using Values = Pack<S, V>;
  __shared__ float of_threads[kDown][kAcross * V + 1];
  const int tx = threadIdx.x % kAcross, ty = threadIdx.x / kAcross;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kAcross * V, column = tile + tx * V;
  float sum[V] = {};
  if (column < n)
    for (std::int64_t begin = first + ty; begin < last; begin += kDown * kUnroll) {
      Values rows[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (begin + u * kDown < last)
          rows[u] = *reinterpret_cast<const Values*>(x + (begin + u * kDown) * n + column);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (begin + u * kDown >= last) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += static_cast<float>(rows[u].at[v]);
      }
    }
#pragma unroll
  for (int v = 0; v < V; ++v) of_threads[ty][tx * V + v] = sum[v];
  __syncthreads();
  for (int i = threadIdx.x; i < kAcross * V; i += kThreads) {
    if (tile + i >= n) continue;
    float total = 0;
#pragma unroll
    for (int d = 0; d < kDown; ++d) total += of_threads[d][i];
    sums[tile + i] = total / divisor;
  }
  __syncthreads();  // the tile may be followed by another
}

/// Of one slice: a block's y is a chunk of rows; sums[chunk, n].
template <class S, int V>
__global__ void __launch_bounds__(kThreads) add_rows(const S* x, float* sums, std::int64_t m, std::int64_t n,
                                                     std::int64_t rows_a_chunk, float divisor) {
  const std::int64_t first = blockIdx.y * rows_a_chunk;
  const std::int64_t last = first + rows_a_chunk < m ? first + rows_a_chunk : m;
  add_tile<S, V>(x, sums + blockIdx.y * n, first, last, n, divisor);
}

/// Of many slices: a block's y begins with one of them.
template <class S, int V>
__global__ void __launch_bounds__(kThreads)
    add_slices(const S* x, float* sums, const __grid_constant__ Sizes s, float divisor) {
  for (std::int64_t o = blockIdx.y; o < s.outer; o += gridDim.y)
    add_tile<S, V>(x + o * s.m * s.n, sums + o * s.n, 0, s.m, s.n, divisor);
}

/// Of slices with few rows: a thread adds those of its columns.
template <class S, int V>
__global__ void __launch_bounds__(kThreads)
    add_few_rows(const S* x, float* sums, const __grid_constant__ Sizes s, float divisor) {
  using Values = Pack<S, V>;
  const std::int64_t packs = s.n / V, count = s.outer * packs;
  for (std::int64_t i = grid_index(); i < count; i += grid_size()) {
    const std::int64_t slice = i / packs, pack = i - slice * packs;
    const auto* const from = reinterpret_cast<const Values*>(x) + slice * s.m * packs + pack;
    float sum[V] = {};
#pragma unroll 4
    for (std::int64_t row = 0; row < s.m; ++row) {
      const Values values = from[row * packs];
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] += static_cast<float>(values.at[v]);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) sums[i * V + v] = sum[v] / divisor;
  }
}

__global__ void __launch_bounds__(kThreads)
    add_chunks(const float* sums, float* y, std::int64_t n, std::int64_t chunks, float divisor) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    float sum = sums[i];
#pragma unroll 8
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) sum += sums[chunk * n + i];
    y[i] = sum / divisor;
  }
}

std::int64_t tiles_of(std::int64_t n, int columns) {
  return (n + kAcross * columns - 1) / (kAcross * columns);
}

template <class S>
PreparedKernel prepare_slices(const Sizes& s, float divisor) {
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& a) {
    constexpr int kWide = kPackOf<S>;
    constexpr std::int64_t kMostSlices = 65535;  // of a grid's y
    constexpr std::int64_t kFewRows = 32;        // that a block's threads would not share well
    const S* const x = a.in<S>(0);
    const bool wide = s.n % kWide == 0 && is_aligned16(x);
    if (s.m <= kFewRows) {
      const std::int64_t threads = s.outer * s.n / (wide ? kWide : 1);
      launch(wide ? add_few_rows<S, kWide> : add_few_rows<S, 1>, blocks_for(threads), kThreads, 0, a.stream,
             x, a.out<float>(0), s, divisor);
      return;
    }
    const auto start = [&](auto function, int columns) {
      launch(function,
             dim3(static_cast<unsigned>(tiles_of(s.n, columns)),
                  static_cast<unsigned>(std::min(s.outer, kMostSlices))),
             dim3(kThreads), 0, a.stream, x, a.out<float>(0), s, divisor);
    };
    if (wide)
      start(add_slices<S, kWide>, kWide);
    else
      start(add_slices<S, 1>, 1);
  };
  return kernel;
}

template <class S>
PreparedKernel prepare_columns(std::int64_t m, std::int64_t n, float divisor) {
  constexpr int kWide = kPackOf<S>;
  const bool wide = n % kWide == 0;
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / tiles_of(n, wide ? kWide : 1));
  const std::int64_t useful = std::max<std::int64_t>(1, m / (kDown * kUnroll));
  const std::int64_t chunks = std::min({wanted, useful, kMostChunks});
  PreparedKernel kernel;
  if (chunks > 1) kernel.scratch_bytes = static_cast<std::size_t>(chunks * n) * sizeof(float);
  kernel.run = [=](const KernelArgs& a) {
    if (n == 0) return;
    const S* const x = a.in<S>(0);
    float* const sums = chunks > 1 ? static_cast<float*>(a.scratch) : a.out<float>(0);
    const auto start = [&](auto function, int columns) {
      launch(function, dim3(static_cast<unsigned>(tiles_of(n, columns)), static_cast<unsigned>(chunks)),
             dim3(kThreads), 0, a.stream, x, sums, m, n, (m + chunks - 1) / chunks, chunks > 1 ? 1 : divisor);
    };
    // Values have 16-byte addresses, but views may not.
    if (wide && is_aligned16(x))
      start(add_rows<S, kWide>, kWide);
    else
      start(add_rows<S, 1>, 1);
    if (chunks > 1)
      launch(add_chunks, blocks_for(n), kThreads, 0, a.stream, sums, a.out<float>(0), n, chunks, divisor);
  };
  return kernel;
}

/// [outer, m, n] where the axes lie together and something is behind them.
std::optional<Sizes> sizes_of(const Shape& shape, const std::vector<int>& axes) {
  Sizes s{1, 1, 1};
  bool any = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool summed = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (summed && any && s.n != 1) return std::nullopt;
    any = any || summed;
    (summed ? s.m : any ? s.n : s.outer) *= shape[axis];
  }
  if (!any || s.n <= 1) return std::nullopt;
  return s;
}

template <class S>
PreparedKernel prepare_of(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                          const PrepareFn& of_float32, float divisor) {
  const auto sizes = sizes_of(shape, axes);
  if (!sizes || sizes->outer == 0) return prepare_widened(c, of_float32);
  return sizes->outer == 1 ? prepare_columns<S>(sizes->m, sizes->n, divisor)
                           : prepare_slices<S>(*sizes, divisor);
}

}  // namespace

PreparedKernel prepare_half_sum(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                                const PrepareFn& of_float32, float divisor) {
  return c.inputs[0].dtype == DType::Float16 ? prepare_of<Float16>(c, shape, axes, of_float32, divisor)
                                             : prepare_of<BFloat16>(c, shape, axes, of_float32, divisor);
}

}  // namespace braid::cuda
