// CUDA kernel of braid.ReluInputGrad: each block does a tile of columns over a chunk of rows, with the sums
// of its columns in registers; a second launch adds the chunks' sums in their order. dy and y are read once,
// and nothing of their size is written.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/fused/relu_input_grad.h"

namespace braid {
namespace {

constexpr int kThreads = 256;
constexpr int kAcross = 16, kDown = kThreads / kAcross;  // threads
constexpr int kUnroll = 4;                               // rows that a thread has in flight
constexpr int kRowsAtOnce = kDown * kUnroll;
constexpr int kInputs = static_cast<int>(kMostInputColumns);
constexpr int kSums = kInputs + 1;        // of dw's rows, then of db
constexpr std::int64_t kBlocks = 264;     // two for each of a large device's processors
constexpr std::int64_t kMostChunks = 64;  // whose sums are added again

/// S: as dy and y are stored.
template <class S>
struct Problem {
  const S *dy, *y;
  const float* x;
  float *dw, *db;
  float* partial;  // [chunks, k + 1, n]
  std::int64_t m, n, rows_a_chunk;
  int k;
};

/// V columns of a thread, side by side.
template <class S, int V>
__global__ void __launch_bounds__(kThreads, 2) add_rows(Problem<S> p) {
  using Values = cuda::Pack<float, V>;
  using Stored = cuda::Pack<S, V>;
  __shared__ alignas(16) float rows_of_x[kRowsAtOnce][kInputs];
  __shared__ Values of_threads[kDown][kAcross];
  const int tx = threadIdx.x % kAcross, ty = threadIdx.x / kAcross;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kAcross + tx) * V;
  const std::int64_t first = blockIdx.y * p.rows_a_chunk;
  const std::int64_t last = min(first + p.rows_a_chunk, p.m);
  Values sums[kSums] = {};
  for (std::int64_t begin = first; begin < last; begin += kRowsAtOnce) {
    Values g[kUnroll], h[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t row = begin + ty + u * kDown;
      g[u] = h[u] = {};
      if (row >= last || column >= p.n) continue;
      const Stored dy = *reinterpret_cast<const Stored*>(p.dy + row * p.n + column);
      const Stored y = *reinterpret_cast<const Stored*>(p.y + row * p.n + column);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        g[u].at[v] = static_cast<float>(dy.at[v]);
        h[u].at[v] = static_cast<float>(y.at[v]);
      }
    }
    for (int i = threadIdx.x; i < kRowsAtOnce * kInputs; i += kThreads) {
      const int r = i / kInputs, j = i % kInputs;
      rows_of_x[r][j] = j < p.k && begin + r < last ? p.x[(begin + r) * p.k + j] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (!(h[u].at[v] > 0)) g[u].at[v] = 0;
        sums[kInputs].at[v] += g[u].at[v];
      }
      const float* const of_row = rows_of_x[ty + u * kDown];
#pragma unroll
      for (int j = 0; j < kInputs; ++j)
#pragma unroll
        for (int v = 0; v < V; ++v) sums[j].at[v] += of_row[j] * g[u].at[v];
    }
    __syncthreads();
  }
  float* const partial = p.partial + static_cast<std::int64_t>(blockIdx.y) * (p.k + 1) * p.n;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    if (s >= p.k && s < kInputs) continue;
    __syncthreads();
    of_threads[ty][tx] = sums[s];
    __syncthreads();
    if (ty != 0 || column >= p.n) continue;
    Values sum = of_threads[0][tx];
    for (int d = 1; d < kDown; ++d)
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += of_threads[d][tx].at[v];
    *reinterpret_cast<Values*>(partial + min(s, p.k) * p.n + column) = sum;
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads) add_chunks(Problem<S> p, std::int64_t chunks) {
  const std::int64_t sums = (p.k + 1) * p.n;
  for (std::int64_t i = cuda::grid_index(); i < sums; i += cuda::grid_size()) {
    float sum = p.partial[i];
#pragma unroll 8
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) sum += p.partial[chunk * sums + i];
    if (i < p.k * p.n)
      p.dw[i] = sum;
    else
      p.db[i - p.k * p.n] = sum;
  }
}

template <class S>
PreparedKernel prepare_of(const PrepareContext& c) {
  const std::int64_t m = c.inputs[1].shape[0], n = c.inputs[1].shape[1], k = c.inputs[2].shape[1];
  PreparedKernel kernel;
  if (n == 0) {
    kernel.run = [](const KernelArgs&) {};
    return kernel;
  }
  const bool wide = n % 4 == 0;
  const auto tiles_of = [n](int columns) { return (n + kAcross * columns - 1) / (kAcross * columns); };
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / tiles_of(wide ? 4 : 1));
  const std::int64_t useful = std::max<std::int64_t>(1, (m + kRowsAtOnce - 1) / kRowsAtOnce);
  const std::int64_t chunks = std::min({wanted, useful, kMostChunks});
  kernel.scratch_bytes = static_cast<std::size_t>(chunks * (k + 1) * n) * sizeof(float);
  kernel.run = [=](const KernelArgs& a) {
    Problem<S> p{};
    p.dy = a.in<S>(0);
    p.y = a.in<S>(1);
    p.x = a.in<float>(2);
    p.dw = a.out<float>(0);
    p.db = a.out<float>(1);
    p.partial = static_cast<float*>(a.scratch);
    p.m = m;
    p.n = n;
    p.k = static_cast<int>(k);
    p.rows_a_chunk = (m + chunks - 1) / chunks;
    const auto start = [&](auto function, int columns) {
      cuda::launch(function, dim3(static_cast<unsigned>(tiles_of(columns)), static_cast<unsigned>(chunks)),
                   dim3(kThreads), 0, a.stream, p);
    };
    // Values have 16-byte addresses, but views may not.
    if (wide && cuda::is_aligned16(p.dy) && cuda::is_aligned16(p.y))
      start(add_rows<S, 4>, 4);
    else
      start(add_rows<S, 1>, 1);
    cuda::launch(add_chunks<S>, cuda::blocks_for((k + 1) * n), kThreads, 0, a.stream, p, chunks);
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  switch (c.inputs[0].dtype) {
    case DType::Float16:
      return prepare_of<Float16>(c);
    case DType::BFloat16:
      return prepare_of<BFloat16>(c);
    default:
      return prepare_of<float>(c);
  }
}

}  // namespace

void register_relu_input_grad_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.ReluInputGrad"});
  registry.add_cuda("braid.ReluInputGrad", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return inputs[0].dtype != DType::Float64 && inputs[2].shape[1] <= kMostInputColumns;
  });
}

}  // namespace braid
