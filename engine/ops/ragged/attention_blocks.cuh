// What the blocks of attention kernels with tensor cores have in common: a piece of a row stays in shared
// memory, tiles of the row pass by, the next one on its way while one is computed with. A warp has kRows
// times 16 rows of the piece; scores and sums are in registers.
#pragma once

#include <limits>

#include "engine/ops/ragged/attention_args.cuh"
#include "engine/ops/ragged/attention_mma.cuh"

namespace braid::cuda::attention {

inline constexpr float kLog2E = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

/// kOwnTiles matrices of kOwn rows stay; two of kOther rows pass by.
template <class M, int W, int kRowBlocks, int kOtherRows, int kOwnTiles>
struct Sizes {
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kRows = kRowBlocks, kOwn = 16 * kRows * kWarps;
  static constexpr int kUnit = 16 * kRows;  // rows that skip tiles together
  static constexpr int kOther = kOtherRows, kScores = kOther / 8;
  static constexpr int kOwnElements = M::template kElements<W, kOwn>;
  static constexpr int kOtherElements = M::template kElements<W, kOther>;
  static constexpr std::size_t kBytes =
      (kOwnTiles * kOwnElements + 4 * kOtherElements) * sizeof(typename M::Element);
};

/// `from`: the first value of the row. Rows behind `length`, and columns behind `width`, are zeros.
template <class M, int W, int kRows, int kBlockThreads, class E = typename M::Element>
__device__ void load_rows(E* to, const E* from, std::int64_t step, int width, int first, int length) {
  constexpr int kPacks = W / kPack<E>;
  static_assert(kRows * kPacks % kBlockThreads == 0);
#pragma unroll
  for (int turn = 0; turn < kRows * kPacks / kBlockThreads; ++turn) {
    const int i = turn * kBlockThreads + static_cast<int>(threadIdx.x);
    const int row = i / kPacks, column = i % kPacks * kPack<E>;
    const bool is_there = first + row < length && column < width;
    copy_ahead(to + M::template place<W, kRows>(row, column),
               is_there ? from + (first + row) * step + column : from, is_there);
  }
}

/// Tiles of `kOther` keys that queries [begin, end) see.
template <int kOther>
struct KeyTiles {
  int from, to, own_from, own_to;  // a range, and that of candidates

  template <class Mask>
  __device__ KeyTiles(const Mask& mask, int begin, int end) {
    const auto span = mask.span(begin, end);
    from = span.from / kOther;
    to = span.from < span.to ? (span.to + kOther - 1) / kOther : from;
    own_from = max(to, max(begin, mask.history) / kOther);
    own_to = span.self ? (end + kOther - 1) / kOther : own_from;
  }
  /// The first tile that is not in front of `tile`; -1: none.
  __device__ int at_least(int tile) const {
    tile = max(tile, from);
    if (tile < to) return tile;
    tile = max(tile, own_from);
    return tile < own_to ? tile : -1;
  }
};

/// Tiles of `kOther` queries that see keys [begin, end).
template <int kOther, class Mask>
struct QueryTiles {
  Mask mask;
  int begin, end;

  __device__ int at_least(int tile) const {
    for (; tile * kOther < mask.queries(); ++tile)
      if (mask.any(tile * kOther, min((tile + 1) * kOther, mask.queries()), begin, end)) return tile;
    return -1;
  }
};

/// load(tile, stage) and compute(tile, stage) for all of them; what was being copied before is there, too.
template <class M, class Tiles, class Load, class Compute>
__device__ void for_tiles(const Tiles& tiles, const Load& load, const Compute& compute) {
  int tile = tiles.at_least(0), stage = 0;
  if (tile >= 0) load(tile, stage);
  end_group_of_copies();
  while (tile >= 0) {
    const int next = tiles.at_least(tile + 1);
    if (next >= 0) load(next, stage ^ 1);
    end_group_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    compute(tile, stage);
    __syncthreads();
    tile = next;
    stage ^= 1;
  }
}

/// x sigmoid(x) and its slope, x = scale s.
struct SiluPoint {
  float value, slope;
};
template <class M>
__device__ float silu(float s, float scale) {
  if constexpr (M::kIsHalf) {
    const float half = s * (0.5F * scale);
    return fmaf(half, fast_tanh(half), half);
  } else {
    const float x = s * scale;
    return x / (1 + expf(-x));
  }
}
template <class M>
__device__ SiluPoint silu_point(float s, float scale) {
  if constexpr (M::kIsHalf) {
    const float half = s * (0.5F * scale), t = fast_tanh(half);
    return {fmaf(half, t, half), (0.5F + 0.5F * t) * fmaf(half, 1 - t, 1.0F)};
  } else {
    const float x = s * scale, sigmoid = 1 / (1 + expf(-x));
    return {x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))};
  }
}

/// Scores of pairs that see nothing of each other become `other`. Rows are queries, from `query` and 8 behind
/// it on for this lane; columns keys.
template <int kRows, int kScores, class Mask>
__device__ void hide(Scores (&scores)[kRows][kScores], const Mask& mask, int query, int key, float other) {
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = query + 16 * m + 8 * half;
      const auto range = mask.keys(i);
#pragma unroll
      for (int n = 0; n < kScores; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int j = key + 8 * n + side;
          const bool is_seen = (range.from <= j && j < range.to) || (range.self && i == j);
          if (!is_seen) scores[m][n][2 * half + side] = other;
        }
    }
}
/// The same where rows are keys.
template <int kScores, class Mask>
__device__ void hide_across(Scores (&scores)[1][kScores], const Mask& mask, int key, int query, float other) {
#pragma unroll
  for (int n = 0; n < kScores; ++n)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int i = query + 8 * n + side;
      const auto range = mask.keys(i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = key + 8 * half;
        const bool is_seen = (range.from <= j && j < range.to) || (range.self && i == j);
        if (!is_seen) scores[0][n][2 * half + side] = other;
      }
    }
}

// What a mask does to scores, where Args have one. They are scaled before it, and not again behind it: a
// query all of whose keys have a score of -1e9 has differences of these that are exact.

/// The exponent of 2 for a score, relative to a base.
struct Exponent {
  float scale, unit;

  template <class Args>
  __device__ explicit Exponent(const Args& args) : scale(static_cast<float>(args.scale) * kLog2E), unit(1) {
    if constexpr (Args::kHasMask)
      if (args.has_mask()) {
        scale = 1;
        unit = kLog2E;
      }
  }
  __device__ float scaled(float score) const { return score * scale; }
  __device__ float of(float score, float base) const { return (score * scale - base) * unit; }
};
/// Rows are queries, as in hide().
template <class Args, int kRows, int kScores>
__device__ void put_mask(const Args& args, const BlockPiece<typename Args::Row>& piece,
                         Scores (&scores)[kRows][kScores], int query, int key) {
  if constexpr (Args::kHasMask) {
    if (!args.has_mask()) return;
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int n = 0; n < kScores; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[m][n][e] =
              args.masked(piece, query + 16 * m + 8 * (e / 2), key + 8 * n + e % 2, scores[m][n][e]);
  }
}
/// The same where rows are keys.
template <class Args, int kScores>
__device__ void put_mask_across(const Args& args, const BlockPiece<typename Args::Row>& piece,
                                Scores (&scores)[1][kScores], int key, int query) {
  if constexpr (Args::kHasMask) {
    if (!args.has_mask()) return;
#pragma unroll
    for (int n = 0; n < kScores; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[0][n][e] = args.masked(piece, query + 8 * n + e % 2, key + 8 * (e / 2), scores[0][n][e]);
  }
}
/// Which scores the mask has put another number in the place of: these have no gradient.
template <class Args, int kRows, int kScores>
class HiddenScores {
 public:
  __device__ HiddenScores(const Args& args, const Scores (&scores)[kRows][kScores]) {
    if constexpr (Args::kHasMask) {
      if (!args.hides()) return;
      for_all([&](int m, int n, int e, std::uint32_t bit) {
        if (scores[m][n][e] == static_cast<float>(args.hidden)) bits_ |= bit;
      });
    }
  }
  __device__ void drop(Scores (&slopes)[kRows][kScores]) const {
    if constexpr (Args::kHasMask) {
      if (bits_ == 0) return;
      for_all([&](int m, int n, int e, std::uint32_t bit) {
        if (bits_ & bit) slopes[m][n][e] = 0;
      });
    }
  }

 private:
  static_assert(kRows * kScores * 4 <= 32);
  template <class F>
  static __device__ void for_all(const F& f) {
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int n = 0; n < kScores; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(m, n, e, 1U << (m * kScores * 4 + n * 4 + e));
  }

  std::uint32_t bits_ = 0;
};

/// Rows of sums, times by[row], that are in front of `length`, to memory. `at`: index of the row's first
/// value; `row`: this lane's first.
template <class M, int W, int kRows>
__device__ void store_rows(void* to, bool is_half, const Scores (&sums)[kRows][W / 8],
                           const float (&by)[kRows][2], std::int64_t at, std::int64_t step, int width,
                           int row, int length) {
  const int column = lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + 16 * m + 8 * half;
      if (i >= length) continue;
      const std::int64_t first = at + i * step + column;
#pragma unroll
      for (int n = 0; n < W / 8; ++n) {
        if (8 * n + column >= width) continue;
        const float x = sums[m][n][2 * half] * by[m][half], y = sums[m][n][2 * half + 1] * by[m][half];
        if constexpr (M::kIsHalf) {
          if (is_half) {
            using E = typename M::Element;
            *reinterpret_cast<std::uint32_t*>(static_cast<E*>(to) + first + 8 * n) = pack_halves<E>(x, y);
            continue;
          }
        }
        *reinterpret_cast<float2*>(static_cast<float*>(to) + first + 8 * n) = make_float2(x, y);
      }
    }
}

template <class S, class Args, class Kernel>
void launch_tiles(Kernel kernel, const Args& args, bool of_keys, StreamRef stream) {
  const unsigned blocks = args.blocks(S::kOwn, of_keys);
  if (blocks == 0) return;
  // Every thread that gets here sets the same limit, so none disturbs another.
  BRAID_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kBytes)));
  launch(kernel, blocks, S::kThreads, S::kBytes, stream, args);
}

}  // namespace braid::cuda::attention
