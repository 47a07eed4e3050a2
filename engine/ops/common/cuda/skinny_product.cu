// A thread has 8 x 8 outputs of its warp's tile and takes four elements of the sum at once: from `a`, which
// all warps of the block read once, and from the rows of b, which lie in shared memory.
#include "engine/ops/common/cuda/skinny_product.h"

#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int kWarps = 16, kBlock = 32 * kWarps;
constexpr int kDown = 8, kAcross = 4;  // threads of a warp
constexpr int kTile = 8;               // outputs of a thread, down and across
constexpr int kRows = kDown * kTile, kColumns = kAcross * kTile;
constexpr int kQuad = 4;
constexpr int kStage = 256;                       // elements of the sum whose rows of b are in shared memory
constexpr int kPacks = kRows * kColumns / kQuad;  // of a tile
constexpr int kSlots = kStage * kColumns / kQuad / kPacks;  // tiles that fit there
static_assert(kPacks == kBlock && kWarps % kSlots == 0 && kBlock % kColumns == 0);

constexpr std::int64_t kBlocks = 132;   // a large device's processors
constexpr std::int64_t kLeastSum = 64;  // of a chunk: a quad for each warp
constexpr std::int64_t kLeastRows = 64, kMostColumns = 16;
constexpr std::int64_t kShortSum = 1024;   // H200: cuBLASLt's batches are faster up to here
constexpr std::int64_t kMostGrid = 65535;  // of the second and the third axis

struct Skinny {
  std::int64_t m, k, chunk;
  int n, columns;  // of a lane, of all
  std::int64_t stride_b, stride_y, row_stride_y;
};

/// Row of the tile that a thread's i-th row is: packs of four lie side by side.
__device__ int row_of(int i, int down) { return i / kQuad * (kDown * kQuad) + down * kQuad + i % kQuad; }

/// Four elements, of which `count` exist.
__device__ void load_quad(float (&to)[kQuad], const float* from, std::int64_t count, bool wide) {
  if (wide) {
    const auto pack = count > 0 ? *reinterpret_cast<const Pack<float, kQuad>*>(from) : Pack<float, kQuad>{};
#pragma unroll
    for (int i = 0; i < kQuad; ++i) to[i] = pack.at[i];
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) to[i] = i < count ? from[i] : 0.0F;
  }
}

/// x[row][element] of a thread, of the elements [at, at + 4) of the sum below `end`.
__device__ void load_a(float (&x)[kTile][kQuad], const float* a, const Skinny& s, std::int64_t first_row,
                       int down, std::int64_t at, std::int64_t end, bool wide) {
#pragma unroll
  for (int e = 0; e < kQuad; ++e)
#pragma unroll
    for (int i = 0; i < kTile; i += kQuad) {
      const std::int64_t row = first_row + row_of(i, down);
      float values[kQuad];
      load_quad(values, a + (at + e) * s.m + row, at + e < end ? s.m - row : 0, wide);
#pragma unroll
      for (int v = 0; v < kQuad; ++v) x[i + v][e] = values[v];
    }
}

/// The sums of a warp as packs of four columns: [row of the thread and half][thread].
__device__ void store_sums(const float (&sums)[kTile][kTile], Pack<float, kQuad>* slot, int thread) {
#pragma unroll
  for (int p = 0; p < 2 * kTile; ++p) {
    Pack<float, kQuad> pack;
#pragma unroll
    for (int v = 0; v < kQuad; ++v) pack.at[v] = sums[p / 2][p % 2 * kQuad + v];
    slot[p * 32 + thread] = pack;
  }
}

__device__ void add_sums(float (&sums)[kTile][kTile], const Pack<float, kQuad>* slot, int thread) {
#pragma unroll
  for (int p = 0; p < 2 * kTile; ++p) {
    const Pack<float, kQuad> pack = slot[p * 32 + thread];
#pragma unroll
    for (int v = 0; v < kQuad; ++v) sums[p / 2][p % 2 * kQuad + v] += pack.at[v];
  }
}

__device__ void add(Pack<float, kQuad>& sum, const Pack<float, kQuad>& more) {
#pragma unroll
  for (int v = 0; v < kQuad; ++v) sum.at[v] += more.at[v];
}

/// Four columns of a row.
__device__ void write(Pack<float, kQuad> sum, float* y, const Skinny& s, std::int64_t row,
                      std::int64_t column) {
#pragma unroll
  for (int v = 0; v < kQuad; ++v) {
    if (column + v >= s.columns) return;
    const int at = static_cast<int>(column) + v, lane = at / s.n, of_lane = at - lane * s.n;
    y[lane * s.stride_y + row * s.row_stride_y + of_lane] = sum.at[v];
  }
}

/// Grid: tiles of rows, chunks of the sum, groups of columns. `partial` [group, tile, chunk, kPacks].
__global__ void __launch_bounds__(kBlock)
    skinny_kernel(const float* __restrict__ a, const float* __restrict__ b, float* y,
                  Pack<float, kQuad>* partial, unsigned* arrived, bool wide,
                  const __grid_constant__ Skinny s) {
  __shared__ Pack<float, kQuad> shared[kStage * kColumns / kQuad];
  auto* const rows_of_b = reinterpret_cast<float*>(shared);
  const int thread = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int down = thread % kDown, across = thread / kDown;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.z) * kColumns;
  const std::int64_t begin = blockIdx.y * s.chunk, end = min(begin + s.chunk, s.k);

  const int loaded = threadIdx.x % kColumns;  // the column of b that this thread copies
  const std::int64_t column_of_b = first_column + loaded;
  const std::int64_t lane_of_b = column_of_b / s.n;
  const float* const from_b = b + lane_of_b * s.stride_b + (column_of_b - lane_of_b * s.n);

  float sums[kTile][kTile] = {};
  for (std::int64_t stage = begin; stage < end; stage += kStage) {
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kStage), end - stage));
    const int quads = (count + kQuad - 1) / kQuad, quads_of_warp = (quads + kWarps - 1) / kWarps;
    if (stage != begin) __syncthreads();
#pragma unroll 8
    for (int r = threadIdx.x / kColumns; r < quads * kQuad; r += kBlock / kColumns)
      rows_of_b[r * kColumns + loaded] =
          r < count && column_of_b < s.columns ? from_b[(stage + r) * s.n] : 0.0F;
    __syncthreads();
    const int last = min(quads, (warp + 1) * quads_of_warp);
    for (int quad = warp * quads_of_warp; quad < last; ++quad) {
      float x[kTile][kQuad];
      load_a(x, a, s, first_row, down, stage + quad * kQuad, end, wide);
#pragma unroll
      for (int e = 0; e < kQuad; ++e) {
        const Pack<float, kQuad>* const row =
            shared + ((quad * kQuad + e) * kColumns + across * kTile) / kQuad;
        const Pack<float, kQuad> halves[2] = {row[0], row[1]};
#pragma unroll
        for (int i = 0; i < kTile; ++i)
#pragma unroll
          for (int j = 0; j < kTile; ++j) sums[i][j] += x[i][e] * halves[j / kQuad].at[j % kQuad];
      }
    }
  }

  // The sums of the other warps into those of the first ones, then these, a pack a thread.
  for (int from = kSlots; from < kWarps; from += kSlots) {
    __syncthreads();
    if (warp >= from && warp < from + kSlots) store_sums(sums, shared + (warp - from) * kPacks, thread);
    __syncthreads();
    if (warp < kSlots) add_sums(sums, shared + warp * kPacks, thread);
  }
  __syncthreads();
  if (warp < kSlots) store_sums(sums, shared + warp * kPacks, thread);
  __syncthreads();
  Pack<float, kQuad> sum = shared[threadIdx.x];
#pragma unroll
  for (int slot = 1; slot < kSlots; ++slot) add(sum, shared[slot * kPacks + threadIdx.x]);

  if (gridDim.y > 1) {
    __shared__ bool is_last;
    const std::int64_t tile = static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x;
    Pack<float, kQuad>* const chunks = partial + tile * gridDim.y * kPacks + threadIdx.x;
    chunks[static_cast<std::int64_t>(blockIdx.y) * kPacks] = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      is_last = atomicAdd(&arrived[tile], 1U) == gridDim.y - 1;
      if (is_last) arrived[tile] = 0;  // for the next run
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    sum = {};
#pragma unroll 8
    for (unsigned chunk = 0; chunk < gridDim.y; ++chunk) {
      const float4 more =
          __ldcg(reinterpret_cast<const float4*>(chunks + static_cast<std::int64_t>(chunk) * kPacks));
      add(sum, {more.x, more.y, more.z, more.w});
    }
  }
  const std::int64_t row = first_row + row_of(warp / 2, down);  // as store_sums() has placed the packs
  if (row < s.m) write(sum, y, s, row, first_column + across * kTile + warp % 2 * kQuad);
}

std::int64_t tiles_of(const Gemm& g) { return (g.m + kRows - 1) / kRows; }
std::int64_t groups_of(const Gemm& g) { return (g.batch * g.n + kColumns - 1) / kColumns; }

}  // namespace

bool is_skinny_product(const Gemm& g) {
  constexpr std::int64_t kMostTiles = 1 << 30;
  return g.dtype == DType::Float32 && g.batch > 1 && g.stride_a == 0 && g.transpose_a && !g.transpose_b &&
         g.row_stride_a == 0 && g.epilogue == Epilogue::None && g.n > 1 && g.n <= kMostColumns &&
         g.m >= kLeastRows && g.k > kShortSum && tiles_of(g) <= kMostTiles && groups_of(g) <= kMostGrid;
}

PreparedGemm prepare_skinny_product(const PrepareContext& c, const Gemm& g) {
  const std::int64_t tiles = tiles_of(g), groups = groups_of(g);
  const std::int64_t most = std::min(kMostGrid, g.k / kLeastSum);
  const std::int64_t wanted = std::clamp<std::int64_t>(kBlocks / (tiles * groups), 1, most);
  const std::int64_t chunk = ((g.k + wanted - 1) / wanted + kQuad - 1) / kQuad * kQuad;
  const std::int64_t chunks = (g.k + chunk - 1) / chunk;
  const Skinny s{.m = g.m,
                 .k = g.k,
                 .chunk = chunk,
                 .n = static_cast<int>(g.n),
                 .columns = static_cast<int>(g.batch * g.n),
                 .stride_b = g.stride_b,
                 .stride_y = g.stride_y,
                 .row_stride_y = g.row_stride_y ? g.row_stride_y : g.n};
  const bool in_packs = g.m % kQuad == 0;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(chunks), static_cast<unsigned>(groups));
  PreparedGemm gemm;
  std::shared_ptr<std::byte[]> arrived;  // counters of the product's own, zero between runs
  if (chunks > 1) {
    gemm.scratch_bytes =
        static_cast<std::size_t>(tiles * groups * chunks * kPacks) * sizeof(Pack<float, kQuad>);
    arrived =
        c.accelerator->allocate(static_cast<std::uint64_t>(tiles * groups) * sizeof(unsigned), "counters");
  }
  gemm.run = [=](const GemmArgs& args) {
    const auto* a = static_cast<const float*>(args.a);
    launch(skinny_kernel, grid, kBlock, 0, args.stream, a, static_cast<const float*>(args.b),
           static_cast<float*>(args.y), static_cast<Pack<float, kQuad>*>(args.scratch),
           reinterpret_cast<unsigned*>(arrived.get()), in_packs && is_aligned16(a), s);
  };
  return gemm;
}

}  // namespace braid::cuda
