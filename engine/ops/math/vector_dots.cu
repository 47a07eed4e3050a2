// A warp has an example, or some of its rows and terms: its threads read packs of four columns, each vector
// once for kRows x kTerms sums of their own; exchanges that halve the number of sums leave each thread one.
#include "engine/ops/math/vector_dots.h"

#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int kRows = 4, kTerms = 8, kPack = 4, kWarp = 32;
static_assert(kRows * kTerms == kWarp);
constexpr int kBlock = 128;  // few, so that small batches use many processors
constexpr std::int64_t kLeastColumns = 32, kMostColumns = 1024;  // a warp reads all of a vector
constexpr std::int64_t kLeastExamples = 64;
constexpr int kMostTiles = 2;  // each reads an example's vectors again

struct Arguments {
  VectorDots d;
  const float* x;
  const float* vectors;
  float* out;
  int row_tiles, tiles;  // of an example
};

template <bool kWide>
__device__ float4 load(const float* from) {
  if constexpr (kWide) return *reinterpret_cast<const float4*>(from);
  return {from[0], from[1], from[2], from[3]};
}

/// The sum of sums[i] over the warp's threads, in thread i. The order of additions is the same for all i.
template <int kHalf = kWarp / 2>
__device__ float total_of_own(float (&sums)[kWarp], int thread) {
  const bool upper = (thread & kHalf) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float kept = upper ? sums[i + kHalf] : sums[i], sent = upper ? sums[i] : sums[i + kHalf];
    sums[i] = kept + __shfl_xor_sync(~0U, sent, kHalf);
  }
  if constexpr (kHalf > 1) return total_of_own<kHalf / 2>(sums, thread);
  return sums[0];
}

template <bool kWide>
__global__ void __launch_bounds__(kBlock) dots_kernel(const __grid_constant__ Arguments s) {
  const int thread = threadIdx.x % kWarp;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  const std::int64_t work = s.d.examples * s.tiles;
  for (std::int64_t at = grid_index() / kWarp; at < work; at += warps) {
    const std::int64_t example = s.tiles == 1 ? at : at / s.tiles;
    const int tile = s.tiles == 1 ? 0 : static_cast<int>(at - example * s.tiles);
    const int row = tile % s.row_tiles * kRows, term = tile / s.row_tiles * kTerms;
    const int rows = static_cast<int>(min(std::int64_t{kRows}, s.d.rows - row)),
              terms = static_cast<int>(min(std::int64_t{kTerms}, s.d.terms - term));
    const float* const x = s.x + example * s.d.x_stride + row * s.d.x_row;
    const float* const vectors = s.vectors + example * s.d.vector_stride + term * s.d.columns;
    float sums[kWarp] = {};
#pragma unroll 1
    for (std::int64_t column = thread * kPack; column < s.d.columns; column += kWarp * kPack) {
      float4 left[kRows], right[kTerms];
#pragma unroll
      for (int t = 0; t < kTerms; ++t)
        right[t] = t < terms ? load<kWide>(vectors + t * s.d.columns + column) : float4{};
#pragma unroll
      for (int r = 0; r < kRows; ++r) left[r] = r < rows ? load<kWide>(x + r * s.d.x_row + column) : float4{};
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int t = 0; t < kTerms; ++t)
          sums[r * kTerms + t] += left[r].x * right[t].x + left[r].y * right[t].y + left[r].z * right[t].z +
                                  left[r].w * right[t].w;
    }
    const float sum = total_of_own(sums, thread);
    const int r = thread / kTerms, t = thread % kTerms;
    if (r < rows && t < terms) s.out[example * s.d.out_stride + (row + r) * s.d.out_row + term + t] = sum;
  }
}

std::int64_t row_tiles_of(const VectorDots& d) { return (d.rows + kRows - 1) / kRows; }
std::int64_t tiles_of(const VectorDots& d) { return row_tiles_of(d) * ((d.terms + kTerms - 1) / kTerms); }

}  // namespace

bool VectorDots::is_supported() const {
  return examples >= kLeastExamples && rows > 0 && terms > 0 && tiles_of(*this) <= kMostTiles &&
         columns >= kLeastColumns && columns <= kMostColumns &&
         ((columns | x_stride | x_row | vector_stride) & 3) == 0;
}

void vector_dots(const VectorDots& dots, const float* x, const float* vectors, float* out, StreamRef stream) {
  const Arguments s{.d = dots,
                    .x = x,
                    .vectors = vectors,
                    .out = out,
                    .row_tiles = static_cast<int>(row_tiles_of(dots)),
                    .tiles = static_cast<int>(tiles_of(dots))};
  const auto kernel = is_aligned16(x) && is_aligned16(vectors) ? dots_kernel<true> : dots_kernel<false>;
  launch(kernel, blocks_for(dots.examples * s.tiles, kBlock / kWarp), kBlock, 0, stream, s);
}

}  // namespace braid::cuda
