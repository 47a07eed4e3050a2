#include "engine/ops/common/cuda/half_sums.h"

#include <algorithm>

#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/half.h"

namespace braid::cuda {
namespace {

constexpr int kAcross = 16, kDown = kThreads / kAcross;
constexpr int kUnroll = 4;                // rows that a thread has in flight
constexpr std::int64_t kBlocks = 528;     // four for each of a large device's processors
constexpr std::int64_t kMostChunks = 64;  // whose sums are added again

/// Each block does a tile of columns over a chunk of rows; sums[chunk, n].
template <class S, int V>
__global__ void __launch_bounds__(kThreads)
    add_rows(const S* x, float* sums, std::int64_t m, std::int64_t n, std::int64_t rows_a_chunk) {
  using Values = Pack<S, V>;
  __shared__ float of_threads[kDown][kAcross * V + 1];
  const int tx = threadIdx.x % kAcross, ty = threadIdx.x / kAcross;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kAcross + tx) * V;
  const std::int64_t first = blockIdx.y * rows_a_chunk;
  const std::int64_t last = first + rows_a_chunk < m ? first + rows_a_chunk : m;
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
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kAcross * V + i;
    if (at >= n) continue;
    float total = 0;
#pragma unroll
    for (int d = 0; d < kDown; ++d) total += of_threads[d][i];
    sums[blockIdx.y * n + at] = total;
  }
}

__global__ void __launch_bounds__(kThreads)
    add_chunks(const float* sums, float* y, std::int64_t n, std::int64_t chunks) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    float sum = sums[i];
#pragma unroll 8
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) sum += sums[chunk * n + i];
    y[i] = sum;
  }
}

template <class S>
PreparedKernel prepare_columns(std::int64_t m, std::int64_t n) {
  constexpr int kWide = kPackOf<S>;
  const bool wide = n % kWide == 0;
  const auto tiles_of = [n](int columns) { return (n + kAcross * columns - 1) / (kAcross * columns); };
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / tiles_of(wide ? kWide : 1));
  const std::int64_t useful = std::max<std::int64_t>(1, m / (kDown * kUnroll));
  const std::int64_t chunks = std::min({wanted, useful, kMostChunks});
  PreparedKernel kernel;
  if (chunks > 1) kernel.scratch_bytes = static_cast<std::size_t>(chunks * n) * sizeof(float);
  kernel.run = [=](const KernelArgs& a) {
    if (n == 0) return;
    const S* const x = a.in<S>(0);
    float* const sums = chunks > 1 ? static_cast<float*>(a.scratch) : a.out<float>(0);
    const auto start = [&](auto function, int columns) {
      launch(function, dim3(static_cast<unsigned>(tiles_of(columns)), static_cast<unsigned>(chunks)),
             dim3(kThreads), 0, a.stream, x, sums, m, n, (m + chunks - 1) / chunks);
    };
    // Values have 16-byte addresses, but views may not.
    if (wide && is_aligned16(x))
      start(add_rows<S, kWide>, kWide);
    else
      start(add_rows<S, 1>, 1);
    if (chunks > 1)
      launch(add_chunks, blocks_for(n), kThreads, 0, a.stream, sums, a.out<float>(0), n, chunks);
  };
  return kernel;
}

template <class S>
struct Widen {
  __device__ float operator()(S x) const { return static_cast<float>(x); }
};

template <class S>
PreparedKernel prepare_widened(const PrepareContext& c, PreparedKernel (*of_float32)(const PrepareContext&)) {
  constexpr std::size_t kAlignment = 256;
  std::vector<OutputInfo> inputs(c.inputs.begin(), c.inputs.end());
  inputs[0].dtype = DType::Float32;
  const PrepareContext wide{c.node, inputs,     c.outputs,       c.values,
                            c.pool, c.services, c.deterministic, c.accelerator};
  PreparedKernel inner = of_float32(wide), kernel;
  const std::size_t apart = (inner.scratch_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::int64_t n = inputs[0].shape.elements();
  kernel.scratch_bytes = apart + static_cast<std::size_t>(n) * sizeof(float);
  kernel.run = [run = std::move(inner.run), apart, n, count = inputs.size()](const KernelArgs& a) {
    auto* const x = reinterpret_cast<float*>(static_cast<std::byte*>(a.scratch) + apart);
    map<1, S, float>(a.stream, {a.in<S>(0)}, x, n, Widen<S>{});
    std::vector<void*> in(a.inputs, a.inputs + count);
    in[0] = x;
    KernelArgs args = a;
    args.inputs = in.data();
    run(args);
  };
  return kernel;
}

template <class S>
PreparedKernel prepare_of(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                          PreparedKernel (*of_float32)(const PrepareContext&)) {
  std::int64_t m = 1, n = 1;
  bool leading = true;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool summed = std::find(axes.begin(), axes.end(), axis) != axes.end();
    leading = leading && (!summed || n == 1);
    (summed ? m : n) *= shape[axis];
  }
  return leading && n > 1 ? prepare_columns<S>(m, n) : prepare_widened<S>(c, of_float32);
}

}  // namespace

PreparedKernel prepare_half_sum(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                                PreparedKernel (*of_float32)(const PrepareContext&)) {
  return c.inputs[0].dtype == DType::Float16 ? prepare_of<Float16>(c, shape, axes, of_float32)
                                             : prepare_of<BFloat16>(c, shape, axes, of_float32);
}

}  // namespace braid::cuda
