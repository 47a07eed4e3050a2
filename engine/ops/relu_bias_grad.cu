// CUDA kernel of braid.ReluBiasGrad, in one launch: each block does a tile of columns over a chunk of rows
// and writes dz and its partial column sums; the block that finishes a tile last adds the chunks' sums in
// their order, so the result does not depend on who that was. Lanes are the grid's third axis.
#include "engine/ops/common/cuda/launch.cuh"

namespace braid {
namespace {

constexpr int kColumns = 32, kRows = 8;  // threads of a block
constexpr int kMostChunks = 64;

template <class T>
__global__ void relu_bias_grad(const T* dy, const T* y, T* dz, T* db, T* partial, unsigned* arrived,
                               std::int64_t m, std::int64_t n, std::int64_t rows_a_chunk) {
  const std::int64_t lane = blockIdx.z;
  dy += lane * m * n;
  y += lane * m * n;
  dz += lane * m * n;
  db += lane * n;
  partial += lane * gridDim.y * n;
  arrived += lane * gridDim.x;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::int64_t first = blockIdx.y * rows_a_chunk;
  const std::int64_t last = min(first + rows_a_chunk, m);
  T sum = 0;
  if (column < n) {
    for (std::int64_t r = first + threadIdx.y; r < last; r += kRows) {
      const std::int64_t at = r * n + column;
      const T value = y[at] > T(0) ? dy[at] : T(0);
      dz[at] = value;
      sum += value;
    }
  }
  __shared__ T sums[kRows][kColumns];
  __shared__ bool is_last;
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0) {
    for (int k = 1; k < kRows; ++k) sum += sums[k][threadIdx.x];
    if (gridDim.y == 1) {
      if (column < n) db[column] = sum;
    } else if (column < n) {
      partial[blockIdx.y * n + column] = sum;
      __threadfence();
    }
  }
  if (gridDim.y == 1) return;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    is_last = atomicAdd(&arrived[blockIdx.x], 1U) == gridDim.y - 1;
    if (is_last) arrived[blockIdx.x] = 0;  // for the next run
  }
  __syncthreads();
  if (!is_last || threadIdx.y != 0 || column >= n) return;
  __threadfence();
  T total = 0;
  for (unsigned chunk = 0; chunk < gridDim.y; ++chunk) total += __ldcg(&partial[chunk * n + column]);
  db[column] = total;
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
  const std::int64_t tiles = (n + kColumns - 1) / kColumns;
  // About two blocks for each of the device's processors, but at least kRows rows for each thread row.
  const std::int64_t wanted = std::max<std::int64_t>(1, 264 / (tiles * lanes));
  const std::int64_t chunks =
      std::clamp<std::int64_t>(std::min(wanted, (m + 4 * kRows - 1) / (4 * kRows)), 1, kMostChunks);
  const std::int64_t rows = (m + chunks - 1) / chunks;
  kernel.scratch_bytes = static_cast<std::size_t>(lanes * chunks * n) * sizeof(T);
  // Counters of the op's own, zero between runs.
  const auto arrived =
      c.accelerator->allocate(static_cast<std::uint64_t>(tiles * lanes) * sizeof(unsigned), "counters");
  kernel.run = [=](const KernelArgs& a) {
    cuda::launch(
        relu_bias_grad<T>,
        dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(chunks), static_cast<unsigned>(lanes)),
        dim3(kColumns, kRows), 0, a.stream, a.in<T>(0), a.in<T>(1), a.out<T>(0), a.out<T>(1),
        static_cast<T*>(a.scratch), reinterpret_cast<unsigned*>(arrived.get()), m, n, rows);
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
