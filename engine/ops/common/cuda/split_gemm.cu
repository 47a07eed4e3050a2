#include "engine/ops/common/cuda/split_gemm.h"

#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr std::int64_t kTile = 128;       // of outputs, down and across
constexpr std::int64_t kEnough = 64;      // tiles that keep a large device busy
constexpr std::int64_t kLeastSum = 128;   // of a chunk
constexpr std::int64_t kLeastChunks = 4;  // fewer gain less than the second launch costs
constexpr std::int64_t kAlignment = 256;

/// y[product, i] = sum of parts[product, chunk, i]. Grid: elements of a product, products.
template <int V>
__global__ void __launch_bounds__(kThreads)
    add_chunks(const float* parts, float* y, std::int64_t elements, std::int64_t chunks) {
  using Values = Pack<float, V>;
  const std::int64_t product = blockIdx.y;
  parts += product * chunks * elements;
  y += product * elements;
  for (std::int64_t i = grid_index() * V; i < elements; i += grid_size() * V) {
    Values sum = *reinterpret_cast<const Values*>(parts + i);
#pragma unroll 4
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
      const Values more = *reinterpret_cast<const Values*>(parts + chunk * elements + i);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += more.at[v];
    }
    *reinterpret_cast<Values*>(y + i) = sum;
  }
}

}  // namespace

std::int64_t chunks_of_sum(const Gemm& g) {
  constexpr std::int64_t kMostProducts = 65535;  // of a grid's second axis
  if (g.dtype != DType::Float32 || g.batch < 2 || g.batch > kMostProducts || !g.transpose_a ||
      g.transpose_b || g.epilogue != Epilogue::None || g.stride_a != g.k * g.m || g.stride_b != g.k * g.n ||
      g.stride_y != g.m * g.n || g.row_stride_a != 0 || g.row_stride_y != 0)
    return 1;
  const std::int64_t across = (g.n + kTile - 1) / kTile;
  if (across > kEnough) return 1;
  const std::int64_t tiles = (g.m + kTile - 1) / kTile * across * g.batch;
  std::int64_t chunks = 1;
  while (tiles * chunks < kEnough && g.k / chunks >= 2 * kLeastSum && g.k / chunks % 2 == 0) chunks *= 2;
  return chunks < kLeastChunks ? 1 : chunks;
}

PreparedGemm prepare_split_gemm(const PrepareContext& c, const Gemm& g) {
  const std::int64_t chunks = chunks_of_sum(g), elements = g.m * g.n;
  Gemm chunk = g;
  chunk.batch = g.batch * chunks;
  chunk.k = g.k / chunks;
  chunk.stride_a = chunk.k * g.m;
  chunk.stride_b = chunk.k * g.n;
  if ((chunk.stride_a | chunk.stride_b | elements) % 4 != 0) chunk.alignment_bytes = sizeof(float);
  const PreparedGemm product = prepare_gemm(c, chunk);
  const auto parts_bytes =
      (chunk.batch * elements * static_cast<std::int64_t>(sizeof(float)) + kAlignment - 1) / kAlignment *
      kAlignment;
  PreparedGemm split;
  split.scratch_bytes = static_cast<std::size_t>(parts_bytes) + product.scratch_bytes;
  split.run = [=, lanes = g.batch](const GemmArgs& args) {
    GemmArgs of_chunks = args;
    of_chunks.y = args.scratch;
    of_chunks.scratch = static_cast<std::byte*>(args.scratch) + parts_bytes;
    product.run(of_chunks);
    const auto add = [&](auto kernel, int packed) {
      launch(kernel, dim3(blocks_for((elements + packed - 1) / packed), static_cast<unsigned>(lanes)),
             kThreads, 0, args.stream, static_cast<const float*>(args.scratch), static_cast<float*>(args.y),
             elements, chunks);
    };
    if (elements % 4 == 0 && is_aligned16(args.y))
      add(add_chunks<4>, 4);
    else
      add(add_chunks<1>, 1);
  };
  return split;
}

}  // namespace braid::cuda
