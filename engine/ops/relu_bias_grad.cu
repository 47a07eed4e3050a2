// CUDA kernel of braid.ReluBiasGrad, in one launch: each block does a tile of columns over a chunk of rows
// and writes dz and its partial column sums; the block that finishes a tile last adds the chunks' sums in
// their order, so the result does not depend on who that was. Lanes are the grid's third axis.
#include "engine/ops/common/cuda/launch.cuh"

namespace braid {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // rows that a thread has in flight
constexpr std::int64_t kMostChunks = 128;
constexpr std::int64_t kBlocks = 1056;  // about 8 for each of a large device's processors

/// V columns of a thread, side by side; X threads side by side, the others below them.
template <class T, int V, int X>
struct Tile {
  static constexpr int kColumns = V * X, kRows = kThreads / X;
};
using Wide = Tile<float, 4, 16>;
template <class T>
using Narrow = Tile<T, 1, 32>;

template <class T, int V, int X>
__global__ void __launch_bounds__(kThreads)
    relu_bias_grad(const T* dy, const T* y, T* dz, T* db, T* partial, unsigned* arrived, std::int64_t m,
                   std::int64_t n, std::int64_t rows_a_chunk) {
  using Values = cuda::Pack<T, V>;
  constexpr int kRows = Tile<T, V, X>::kRows;
  const std::int64_t lane = blockIdx.z;
  dy += lane * m * n;
  y += lane * m * n;
  dz += lane * m * n;
  db += lane * n;
  partial += lane * gridDim.y * n;
  arrived += lane * gridDim.x;
  const int tx = threadIdx.x % X, ty = threadIdx.x / X;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * X + tx) * V;
  const std::int64_t first = blockIdx.y * rows_a_chunk;
  const std::int64_t last = min(first + rows_a_chunk, m);
  Values sum = {};
  if (column < n) {
    for (std::int64_t r = first + ty; r < last; r += kRows * kUnroll) {
      Values g[kUnroll], h[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t row = r + u * kRows;
        if (row >= last) continue;
        g[u] = *reinterpret_cast<const Values*>(dy + row * n + column);
        h[u] = *reinterpret_cast<const Values*>(y + row * n + column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t row = r + u * kRows;
        if (row >= last) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (!(h[u].at[v] > T(0))) g[u].at[v] = T(0);
          sum.at[v] += g[u].at[v];
        }
        *reinterpret_cast<Values*>(dz + row * n + column) = g[u];
      }
    }
  }
  __shared__ Values sums[kRows][X];
  __shared__ bool is_last;
  const auto add_rows = [&] {  // of the block, into those of its first row of threads
    sums[ty][tx] = sum;
    __syncthreads();
    if (ty != 0) return;
    for (int k = 1; k < kRows; ++k)
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += sums[k][tx].at[v];
  };
  add_rows();
  if (ty == 0 && column < n) {
    *reinterpret_cast<Values*>((gridDim.y == 1 ? db : partial + blockIdx.y * n) + column) = sum;
    __threadfence();
  }
  if (gridDim.y == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(&arrived[blockIdx.x], 1U) == gridDim.y - 1;
    if (is_last) arrived[blockIdx.x] = 0;  // for the next run
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  sum = {};
  if (column < n)
    for (unsigned chunk = ty; chunk < gridDim.y; chunk += kRows)
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += __ldcg(&partial[chunk * n + column + v]);
  add_rows();
  if (ty == 0 && column < n) *reinterpret_cast<Values*>(db + column) = sum;
}

template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t lanes = shape.rank() == 3 ? shape[0] : 1;
  const std::int64_t m = shape[shape.rank() - 2], n = shape[shape.rank() - 1];
  PreparedKernel kernel;
  if (n == 0 || lanes == 0) {
    kernel.run = [](const KernelArgs&) {};
    return kernel;
  }
  // Wide tiles need 16-byte addresses, which values have but views may not.
  const bool wide = std::is_same_v<T, float> && n % 4 == 0;
  const std::int64_t columns = wide ? Wide::kColumns : Narrow<T>::kColumns;
  const std::int64_t rows_of_block = wide ? Wide::kRows : Narrow<T>::kRows;
  const std::int64_t tiles = (n + columns - 1) / columns;
  const std::int64_t most_tiles = (n + Narrow<T>::kColumns - 1) / Narrow<T>::kColumns;
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / (tiles * lanes));
  const std::int64_t useful = (m + kUnroll * rows_of_block - 1) / (kUnroll * rows_of_block);
  const std::int64_t chunks = std::clamp<std::int64_t>(std::min(wanted, useful), 1, kMostChunks);
  const std::int64_t rows = (m + chunks - 1) / chunks;
  kernel.scratch_bytes = static_cast<std::size_t>(lanes * chunks * n) * sizeof(T);
  // Counters of the op's own, zero between runs.
  const auto arrived =
      c.accelerator->allocate(static_cast<std::uint64_t>(most_tiles * lanes) * sizeof(unsigned), "counters");
  kernel.run = [=](const KernelArgs& a) {
    const auto start = [&](auto function, std::int64_t across) {
      cuda::launch(
          function,
          dim3(static_cast<unsigned>(across), static_cast<unsigned>(chunks), static_cast<unsigned>(lanes)),
          dim3(kThreads), 0, a.stream, a.in<T>(0), a.in<T>(1), a.out<T>(0), a.out<T>(1),
          static_cast<T*>(a.scratch), reinterpret_cast<unsigned*>(arrived.get()), m, n, rows);
    };
    if constexpr (std::is_same_v<T, float>) {
      if (wide && cuda::is_aligned16(a.in<T>(0)) && cuda::is_aligned16(a.in<T>(1)) &&
          cuda::is_aligned16(a.out<T>(0)) && cuda::is_aligned16(a.out<T>(1)))
        return start(relu_bias_grad<T, 4, 16>, tiles);
    }
    start(relu_bias_grad<T, 1, 32>, most_tiles);
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}

}  // namespace

void register_relu_bias_grad_cuda(OpRegistry& registry) {
  constexpr std::int64_t kMostLanes = 65535;  // of a grid's third axis
  registry.add_cuda("braid.ReluBiasGrad", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return inputs[0].shape.rank() == 2 || inputs[0].shape[0] <= kMostLanes;
  });
}

}  // namespace braid
