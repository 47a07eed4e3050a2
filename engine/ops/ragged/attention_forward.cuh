// Attention's output on tensor cores: a block has queries of a head of a row; keys and values pass by.
#pragma once

#include "engine/ops/ragged/attention_blocks.cuh"

namespace braid::cuda::attention {

template <class M, int W>
using ForwardSizes = Sizes<M, W, M::kIsHalf ? 2 : 1, M::kIsHalf ? 64 : 32, 1>;

/// Softmax of a lane's rows, so far; maxima are of scaled scores.
template <int kRows>
struct RunningSoftmax {
  float max[kRows][2], sum[kRows][2];  // sums of this lane's columns

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      max[m][0] = max[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0;
    }
  }
  /// Scores become weights; sums so far are to be scaled by `factors`. Hidden scores are -infinity.
  template <int kScores>
  __device__ void weigh(Scores (&scores)[kRows][kScores], const Exponent& exponent,
                        float (&factors)[kRows][2]) {
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = max[m][half];
#pragma unroll
        for (int n = 0; n < kScores; ++n)
#pragma unroll
          for (int side = 0; side < 2; ++side)
            most = fmaxf(most, exponent.scaled(scores[m][n][2 * half + side]));
        most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
        const float base = most == -INFINITY ? 0.0F : most;
        factors[m][half] = exp2f((max[m][half] - base) * exponent.unit);
        float added = 0;
#pragma unroll
        for (int n = 0; n < kScores; ++n)
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            float& score = scores[m][n][2 * half + side];
            score = exp2f(exponent.of(score, base));
            added += score;
          }
        max[m][half] = most;
        sum[m][half] = sum[m][half] * factors[m][half] + added;
      }
  }
  /// Of all lanes that have the row.
  __device__ float whole_sum(int m, int half) const {
    float all = sum[m][half];
    all += __shfl_xor_sync(~0U, all, 1);
    return all + __shfl_xor_sync(~0U, all, 2);
  }
};

template <int kRows, int kColumns>
__device__ void scale_rows(Scores (&sums)[kRows][kColumns], const float (&factors)[kRows][2]) {
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int n = 0; n < kColumns; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] *= factors[m][e / 2];
}

template <class M, int kRows, int kScores>
__device__ void silu_all(Scores (&scores)[kRows][kScores], float scale) {
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int n = 0; n < kScores; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[m][n][e] = silu<M>(scores[m][n][e], scale);
}

/// What sums of this lane's queries are multiplied by at the end; what softmax keeps is written, too.
template <bool kSoftmax, class Args, int kRows>
__device__ void finish_rows(const Args& args, const BlockPiece<typename Args::Row>& piece, int length,
                            int query, const RunningSoftmax<kRows>& softmax, const Exponent& exponent,
                            float (&by)[kRows][2]) {
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kSoftmax) {
        const float sum = softmax.whole_sum(m, half);
        const int i = query + 16 * m + 8 * half;
        by[m][half] = sum > 0 ? 1 / sum : 0.0F;
        if (i < length && lane_id() % 4 == 0)
          args.keep_sums(
              piece.row, piece.head, i,
              sum > 0 ? KeptSums<float>{softmax.max[m][half] * (exponent.unit == 1 ? kLn2 : 1.0F), logf(sum)}
                      : KeptSums<float>{0, INFINITY});
      } else {
        by[m][half] = static_cast<float>(args.share());
      }
    }
}

template <class Args, class M, int W, bool kSoftmax>
__global__ void __launch_bounds__(ForwardSizes<M, W>::kThreads, 2)
    forward_kernel(const __grid_constant__ Args args) {
  using E = typename M::Element;
  using S = ForwardSizes<M, W>;
  extern __shared__ uint4 memory[];
  E* const own = reinterpret_cast<E*>(memory);
  E* const others = own + S::kOwnElements;
  BlockPiece<typename Args::Row> piece;
  if (!args.template begin_piece<S::kOwn>(blockIdx.x, false, piece)) return;
  const auto mask = args.mask(piece.row);
  const int first = piece.first, head = piece.head, length = mask.queries(), keys = mask.all_keys();
  const Places<E> at(args, piece.row, head);
  load_rows<M, W, S::kOwn, S::kThreads>(own, at.q, at.q_step, args.qk_width, first, length);

  const int row = static_cast<int>(threadIdx.x) / 32 * 16 * S::kRows;  // the warp's, in the piece
  const int query = first + row + lane_id() / 4;
  const float scale = static_cast<float>(args.scale);
  Scores sums[S::kRows][W / 8] = {};
  RunningSoftmax<S::kRows> softmax;
  const Exponent exponent(args);
  const auto load = [&](int tile, int stage) {
    E* const to = others + stage * 2 * S::kOtherElements;
    load_rows<M, W, S::kOther, S::kThreads>(to, at.k, at.k_step, args.qk_width, tile * S::kOther, keys);
    load_rows<M, W, S::kOther, S::kThreads>(to + S::kOtherElements, at.v, at.v_step, args.v_width,
                                            tile * S::kOther, keys);
  };
  const int begin = first + row / S::kUnit * S::kUnit, end = min(begin + S::kUnit, length);
  const KeyTiles<S::kOther> tiles(mask, first, min(first + S::kOwn, length));
  for_tiles<M>(tiles, load, [&](int tile, int stage) {
    const E* const tiles_of_keys = others + stage * 2 * S::kOtherElements;
    const int key = tile * S::kOther;
    if (begin >= end || !mask.any(begin, end, key, key + S::kOther)) return;
    const bool sees_all = mask.all(begin, end, key, key + S::kOther);
    Scores scores[S::kRows][S::kScores] = {};
    add_scores<M, W>(scores, own, row, tiles_of_keys);
    if constexpr (kSoftmax) {
      put_mask(args, piece, scores, query, key + lane_id() % 4 * 2);
      if (!sees_all) hide(scores, mask, query, key + lane_id() % 4 * 2, -INFINITY);
      float factors[S::kRows][2];
      softmax.weigh(scores, exponent, factors);
      scale_rows(sums, factors);
    } else {
      silu_all<M>(scores, scale);
      if (!sees_all) hide(scores, mask, query, key + lane_id() % 4 * 2, 0.0F);
    }
    add_weighted<M, W>(sums, scores, tiles_of_keys + S::kOtherElements);
  });

  float by[S::kRows][2];
  finish_rows<kSoftmax>(args, piece, length, query, softmax, exponent, by);
  store_rows<M, W, S::kRows>(args.results[0], args.are_halves[0], sums, by, args.out_at(piece.row, head),
                             at.out_step, args.v_width, query, length);
}

template <class Args, class M, int W, bool kSoftmax>
void launch_forward(const Args& args, StreamRef stream) {
  launch_tiles<ForwardSizes<M, W>>(forward_kernel<Args, M, W, kSoftmax>, args, false, stream);
}

}  // namespace braid::cuda::attention
