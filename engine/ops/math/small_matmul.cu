#include "engine/ops/math/small_matmul.h"

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int kTile = 4;      // outputs of a thread, across and down
constexpr int kInFlight = 8;  // elements that a thread loads together
constexpr std::int64_t kMostShared = 40 << 10;
constexpr std::int64_t kLeastBatch = 256, kMostSum = 64;

int padded(std::int64_t n) { return static_cast<int>((n + kTile - 1) / kTile * kTile); }

struct SmallMatmul {
  int m, n, k, padded_m, padded_n;
  int tiles_across, tiles;  // of a product
  int products;             // of a block
  std::int64_t batch, stride_a, stride_b, stride_y;
  bool transpose_a, transpose_b;
  Divider by_a, by_a_row, by_b, by_b_row, by_y;  // elements of a matrix, and of its rows in memory
};

/// `count` matrices of rows x columns in memory, which lie `stride` apart, into shared memory as
/// [matrix][k][padded]; `k_is_row`: rows in memory are the sum's axis.
__device__ void load(const float* from, std::int64_t stride, float* to, int count, Divider by_matrix,
                     Divider by_row, bool k_is_row, int k, int width) {
  const auto elements = count * static_cast<int>(by_matrix.divisor());
  for (int begin = threadIdx.x; begin < elements; begin += kInFlight * kThreads) {
    float values[kInFlight];
    int at[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int i = begin + u * kThreads;
      if (i >= elements) continue;
      const auto p = static_cast<int>(by_matrix.quotient(static_cast<std::uint32_t>(i)));
      const int e = i - p * static_cast<int>(by_matrix.divisor());
      const auto row = static_cast<int>(by_row.quotient(static_cast<std::uint32_t>(e)));
      const int column = e - row * static_cast<int>(by_row.divisor());
      const int kk = k_is_row ? row : column, other = k_is_row ? column : row;
      at[u] = (p * k + kk) * width + other;
      values[u] = from[p * stride + e];
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u)
      if (begin + u * kThreads < elements) to[at[u]] = values[u];
  }
}

__global__ void __launch_bounds__(kThreads)
    small_matmul_kernel(const float* a, const float* b, float* y, const __grid_constant__ SmallMatmul s) {
  extern __shared__ float4 shared4[];
  auto* shared = reinterpret_cast<float*>(shared4);
  float* sa = shared;
  float* sb = shared + s.products * s.k * s.padded_m;
  const int product = threadIdx.x / s.tiles, tile = threadIdx.x - product * s.tiles;
  const int row = tile / s.tiles_across * kTile, column = tile % s.tiles_across * kTile;
  const int outputs = s.m * s.n;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * s.products; first < s.batch;
       first += static_cast<std::int64_t>(gridDim.x) * s.products) {
    const int count = static_cast<int>(min(static_cast<std::int64_t>(s.products), s.batch - first));
    load(a + first * s.stride_a, s.stride_a, sa, count, s.by_a, s.by_a_row, s.transpose_a, s.k, s.padded_m);
    load(b + first * s.stride_b, s.stride_b, sb, count, s.by_b, s.by_b_row, !s.transpose_b, s.k, s.padded_n);
    __syncthreads();
    float sums[kTile][kTile] = {};
    if (product < count) {
      const float* pa = sa + product * s.k * s.padded_m + row;
      const float* pb = sb + product * s.k * s.padded_n + column;
      for (int kk = 0; kk < s.k; ++kk) {
        const float4 va = *reinterpret_cast<const float4*>(pa + kk * s.padded_m);
        const float4 vb = *reinterpret_cast<const float4*>(pb + kk * s.padded_n);
        const float ra[kTile] = {va.x, va.y, va.z, va.w}, rb[kTile] = {vb.x, vb.y, vb.z, vb.w};
#pragma unroll
        for (int i = 0; i < kTile; ++i)
#pragma unroll
          for (int j = 0; j < kTile; ++j) sums[i][j] += ra[i] * rb[j];
      }
    }
    __syncthreads();
    if (product < count) {
#pragma unroll
      for (int i = 0; i < kTile; ++i)
#pragma unroll
        for (int j = 0; j < kTile; ++j)
          if (row + i < s.m && column + j < s.n)
            shared[product * outputs + (row + i) * s.n + column + j] = sums[i][j];
    }
    __syncthreads();
    float* out = y + first * s.stride_y;
    for (int i = threadIdx.x; i < count * outputs; i += blockDim.x) {
      const auto p = static_cast<int>(s.by_y.quotient(static_cast<std::uint32_t>(i)));
      out[p * s.stride_y + (i - p * outputs)] = shared[i];
    }
    __syncthreads();
  }
}

std::int64_t shared_floats(const Gemm& g, std::int64_t products) {
  return products * std::max(g.k * (padded(g.m) + padded(g.n)), g.m * g.n);
}

std::int64_t products_of_block(const Gemm& g) {
  const std::int64_t tiles = (padded(g.m) / kTile) * (padded(g.n) / kTile);
  const std::int64_t fitting = kMostShared / (shared_floats(g, 1) * static_cast<std::int64_t>(sizeof(float)));
  return std::min(kThreads / tiles, fitting);
}

}  // namespace

bool is_small_matmul(const Gemm& g) {
  return g.dtype == DType::Float32 && g.epilogue == Epilogue::None && g.row_stride_a == 0 &&
         g.row_stride_y == 0 && g.batch >= kLeastBatch && g.m > 1 && g.n > 1 && g.k > 0 && g.k <= kMostSum &&
         g.m * g.n <= kThreads * kTile * kTile && std::min({g.m, g.n, g.k}) <= 32 &&
         products_of_block(g) >= 1;
}

PreparedGemm prepare_small_matmul(const Gemm& g) {
  SmallMatmul s{};
  s.m = static_cast<int>(g.m);
  s.n = static_cast<int>(g.n);
  s.k = static_cast<int>(g.k);
  s.padded_m = padded(g.m);
  s.padded_n = padded(g.n);
  s.tiles_across = s.padded_n / kTile;
  s.tiles = s.padded_m / kTile * s.tiles_across;
  s.products = static_cast<int>(products_of_block(g));
  s.batch = g.batch;
  s.stride_a = g.stride_a;
  s.stride_b = g.stride_b;
  s.stride_y = g.stride_y;
  s.transpose_a = g.transpose_a;
  s.transpose_b = g.transpose_b;
  s.by_a = Divider(g.m * g.k);
  s.by_a_row = Divider(g.transpose_a ? g.m : g.k);
  s.by_b = Divider(g.k * g.n);
  s.by_y = Divider(g.m * g.n);
  s.by_b_row = Divider(g.transpose_b ? g.k : g.n);
  const auto shared = static_cast<std::size_t>(shared_floats(g, s.products)) * sizeof(float);
  const unsigned blocks = blocks_for((g.batch + s.products - 1) / s.products, 1);
  PreparedGemm gemm;
  gemm.run = [=](const GemmArgs& a) {
    launch(small_matmul_kernel, blocks, kThreads, shared, a.stream, static_cast<const float*>(a.a),
           static_cast<const float*>(a.b), static_cast<float*>(a.y), s);
  };
  return gemm;
}

}  // namespace braid::cuda
