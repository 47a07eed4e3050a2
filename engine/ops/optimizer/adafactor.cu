// CUDA kernels of braid.ApplyAdafactor. A tile is kTileRows rows of kThreads columns of a matrix, a block of
// threads does one and a thread has a column of it. Launches, in order: sums of squares of tiles; states by
// columns and rows; factors of rows; sums of the update's squares; its scale; the weights. Sums of tiles are
// added in their order.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/optimizer/adafactor.h"
#include "engine/ops/optimizer/optimizer_attrs.h"

namespace braid {
namespace {

constexpr int kTileRows = 32, kWarp = 32, kWarps = cuda::kThreads / kWarp;

struct Matrices {
  AdafactorLayout of;
  std::int64_t row_tiles, column_tiles;
  float *weights, *m, *row, *column;  // m and row are null where there are none
  const float* gradient;
  float *row_sums, *column_sums;        // [matrices, rows, column_tiles], [matrices, row_tiles, columns]
  float *row_factors, *column_factors;  // [matrices, rows], [matrices, columns]
  float *weight_sums, *update_sums;     // [tiles]
  float* weight_total;                  // [1]
  AdafactorScale* scale;                // [1]

  __host__ __device__ std::int64_t tiles() const { return of.matrices * row_tiles * column_tiles; }
};

/// What a thread has of the block's tile.
struct Tile {
  std::int64_t matrix, row_tile, column_tile, first_row, rows, column;
  bool inside;  // its column is one of the matrix

  __device__ explicit Tile(const Matrices& x) {
    const std::int64_t tile = blockIdx.x, of_matrix = x.row_tiles * x.column_tiles;
    matrix = tile / of_matrix;
    row_tile = tile % of_matrix / x.column_tiles;
    column_tile = tile % x.column_tiles;
    first_row = row_tile * kTileRows;
    rows = x.of.rows - first_row < kTileRows ? x.of.rows - first_row : kTileRows;
    column = column_tile * cuda::kThreads + threadIdx.x;
    inside = column < x.of.columns;
  }
  __device__ std::int64_t element(const Matrices& x, std::int64_t r) const {
    return (matrix * x.of.rows + first_row + r) * x.of.columns + column;
  }
};

__device__ float warp_sum(float x) {
  for (int other = kWarp / 2; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffU, x, other);
  return x;
}

/// All threads call it; the sum is thread 0's.
__device__ float block_sum(float x) {
  __shared__ float sums[kWarps];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  if (threadIdx.x == 0)
    for (int w = 0; w < kWarps; ++w) sum += sums[w];
  return sum;
}

__device__ AdafactorStep step_of(const OptimizerSpec& spec, const StepParams* params) {
  return adafactor_step(spec, params->learning_rate, params->grad_scale, params->step);
}

__global__ void __launch_bounds__(cuda::kThreads)
    tile_sums(const __grid_constant__ Matrices x, const __grid_constant__ OptimizerSpec spec,
              const StepParams* params) {
  __shared__ float rows[kTileRows][kWarps];
  const Tile tile(x);
  const AdafactorStep s = step_of(spec, params);
  float column = 0, weights = 0;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float q = 0;
    if (tile.inside) {
      const std::int64_t at = tile.element(x, r);
      q = adafactor_square(s, x.gradient[at]);
      weights += x.weights[at] * x.weights[at];
    }
    column += q;
    const float sum = warp_sum(q);
    if (threadIdx.x % kWarp == 0) rows[r][threadIdx.x / kWarp] = sum;
  }
  if (tile.inside)
    x.column_sums[(tile.matrix * x.row_tiles + tile.row_tile) * x.of.columns + tile.column] = column;
  __syncthreads();
  if (static_cast<std::int64_t>(threadIdx.x) < tile.rows) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += rows[threadIdx.x][w];
    x.row_sums[(tile.matrix * x.of.rows + tile.first_row + threadIdx.x) * x.column_tiles + tile.column_tile] =
        sum;
  }
  const float total = block_sum(weights);
  if (threadIdx.x == 0) x.weight_sums[blockIdx.x] = total;
}

__global__ void states(const __grid_constant__ Matrices x, const __grid_constant__ OptimizerSpec spec,
                       const StepParams* params) {
  const AdafactorStep s = step_of(spec, params);
  const std::int64_t columns = x.of.matrices * x.of.columns, rows = x.of.matrices * x.of.rows;
  for (std::int64_t i = cuda::grid_index(); i < columns + rows; i += cuda::grid_size()) {
    if (i < columns) {
      const std::int64_t matrix = i / x.of.columns, column = i % x.of.columns;
      float sum = 0;
      for (std::int64_t t = 0; t < x.row_tiles; ++t)
        sum += x.column_sums[(matrix * x.row_tiles + t) * x.of.columns + column];
      const float state = s.kept * x.column[i] + s.fresh * (sum / static_cast<float>(x.of.rows));
      x.column[i] = state;
      x.column_factors[i] = 1 / sqrtf(state);
    } else if (x.of.factored) {
      const std::int64_t row = i - columns;
      float sum = 0;
      for (std::int64_t t = 0; t < x.column_tiles; ++t) sum += x.row_sums[row * x.column_tiles + t];
      x.row[row] = s.kept * x.row[row] + s.fresh * (sum / static_cast<float>(x.of.columns));
    } else {
      x.row_factors[i - columns] = 1;
    }
  }
}

/// A block for each matrix; the one behind them adds up the squares of the weights.
__global__ void __launch_bounds__(cuda::kThreads) factors(const __grid_constant__ Matrices x) {
  __shared__ float mean;
  const std::int64_t matrix = blockIdx.x;
  if (matrix == x.of.matrices) {
    float sum = 0;
    for (std::int64_t t = threadIdx.x; t < x.tiles(); t += cuda::kThreads) sum += x.weight_sums[t];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *x.weight_total = sum;
    return;
  }
  if (!x.of.factored) return;
  const float* const row = x.row + matrix * x.of.rows;
  float sum = 0;
  for (std::int64_t r = threadIdx.x; r < x.of.rows; r += cuda::kThreads) sum += row[r];
  sum = block_sum(sum);
  if (threadIdx.x == 0) mean = sum / static_cast<float>(x.of.rows);
  __syncthreads();
  for (std::int64_t r = threadIdx.x; r < x.of.rows; r += cuda::kThreads)
    x.row_factors[matrix * x.of.rows + r] = 1 / sqrtf(row[r] / mean);
}

__device__ float update_of(const Matrices& x, const AdafactorStep& s, const Tile& tile, std::int64_t r,
                           float column_factor) {
  return adafactor_update(s, x.gradient[tile.element(x, r)],
                          x.row_factors[tile.matrix * x.of.rows + tile.first_row + r], column_factor);
}

__global__ void __launch_bounds__(cuda::kThreads)
    update_sums(const __grid_constant__ Matrices x, const __grid_constant__ OptimizerSpec spec,
                const StepParams* params) {
  const Tile tile(x);
  const AdafactorStep s = step_of(spec, params);
  float sum = 0;
  if (tile.inside) {
    const float factor = x.column_factors[tile.matrix * x.of.columns + tile.column];
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float u = update_of(x, s, tile, r, factor);
      sum += u * u;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) x.update_sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(cuda::kThreads)
    scale_of(const __grid_constant__ Matrices x, const __grid_constant__ OptimizerSpec spec,
             const StepParams* params) {
  float sum = 0;
  for (std::int64_t t = threadIdx.x; t < x.tiles(); t += cuda::kThreads) sum += x.update_sums[t];
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    *x.scale = adafactor_scale(step_of(spec, params), static_cast<double>(*x.weight_total),
                               static_cast<double>(sum), x.of.elements());
}

__global__ void __launch_bounds__(cuda::kThreads)
    apply(const __grid_constant__ Matrices x, const __grid_constant__ OptimizerSpec spec,
          const StepParams* params) {
  const Tile tile(x);
  if (!tile.inside) return;
  const AdafactorStep s = step_of(spec, params);
  const AdafactorScale scale = *x.scale;
  const float factor = x.column_factors[tile.matrix * x.of.columns + tile.column];
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::int64_t at = tile.element(x, r);
    x.weights[at] =
        adafactor_apply(s, scale, x.weights[at], update_of(x, s, tile, r, factor), x.m ? x.m + at : nullptr);
  }
}

/// Parts of scratch, one behind another.
struct Parts {
  std::size_t bytes = 0;
  std::size_t take(std::int64_t floats) {
    const std::size_t at = bytes;
    bytes += (static_cast<std::size_t>(floats) * sizeof(float) + 255) / 256 * 256;
    return at;
  }
};

PreparedKernel prepare(const PrepareContext& c) {
  const OptimizerSpec spec = optimizer_spec(c.node.attrs);
  Matrices x{};
  x.of = adafactor_layout(spec, c.inputs[0].shape);
  x.row_tiles = (x.of.rows + kTileRows - 1) / kTileRows;
  x.column_tiles = (x.of.columns + cuda::kThreads - 1) / cuda::kThreads;
  const std::int64_t rows = x.of.matrices * x.of.rows, columns = x.of.matrices * x.of.columns;
  Parts parts;
  const std::size_t row_sums = parts.take(rows * x.column_tiles),
                    column_sums = parts.take(columns * x.row_tiles);
  const std::size_t row_factors = parts.take(rows), column_factors = parts.take(columns);
  const std::size_t weights = parts.take(x.tiles()), updates = parts.take(x.tiles());
  const std::size_t total = parts.take(1), scale = parts.take(2);
  PreparedKernel kernel;
  kernel.scratch_bytes = parts.bytes;
  kernel.run = [=](const KernelArgs& a) {
    if (x.of.elements() == 0) return;
    const auto at = [&](std::size_t offset) {
      return reinterpret_cast<float*>(static_cast<char*>(a.scratch) + offset);
    };
    Matrices y = x;
    y.weights = a.var<float>(0);
    y.m = x.of.has_moment ? a.var<float>(x.of.moment()) : nullptr;
    y.row = x.of.factored ? a.var<float>(x.of.row()) : nullptr;
    y.column = a.var<float>(x.of.column());
    y.gradient = a.in<float>(x.of.gradient());
    y.row_sums = at(row_sums);
    y.column_sums = at(column_sums);
    y.row_factors = at(row_factors);
    y.column_factors = at(column_factors);
    y.weight_sums = at(weights);
    y.update_sums = at(updates);
    y.weight_total = at(total);
    y.scale = reinterpret_cast<AdafactorScale*>(at(scale));
    const auto tiles = static_cast<unsigned>(y.tiles());
    cuda::launch(tile_sums, tiles, cuda::kThreads, 0, a.stream, y, spec, a.params);
    cuda::launch(states, cuda::blocks_for(rows + columns), cuda::kThreads, 0, a.stream, y, spec, a.params);
    cuda::launch(factors, static_cast<unsigned>(y.of.matrices + 1), cuda::kThreads, 0, a.stream, y);
    cuda::launch(update_sums, tiles, cuda::kThreads, 0, a.stream, y, spec, a.params);
    cuda::launch(scale_of, 1, cuda::kThreads, 0, a.stream, y, spec, a.params);
    cuda::launch(apply, tiles, cuda::kThreads, 0, a.stream, y, spec, a.params);
  };
  return kernel;
}

/// Blocks are counted in 31 bits.
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  const AdafactorLayout of = adafactor_layout(optimizer_spec(node.attrs), inputs[0].shape);
  return of.elements() / cuda::kThreads + of.matrices * (of.rows / kTileRows + 1) < (std::int64_t{1} << 31);
}

}  // namespace

void register_adafactor_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.ApplyAdafactor", prepare, supports);
}

}  // namespace braid
