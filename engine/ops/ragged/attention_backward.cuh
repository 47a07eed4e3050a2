// Attention's gradients on tensor cores, in two launches that compute scores again, so that each number is
// added up by one block: the first has queries, by which keys and values pass, and gives dq; the second has
// keys and values, by which queries and the output's gradients pass, and gives dk and dv.
#pragma once

#include "engine/ops/ragged/attention_blocks.cuh"

namespace braid::cuda::attention {

template <class M, int W>
using QuerySizes = Sizes<M, W, M::kIsHalf ? 2 : 1, M::kIsHalf ? 32 : 16, 2>;
template <class M, int W>
using KeySizes = Sizes<M, W, 1, M::kIsHalf ? 64 : 16, 2>;

/// What softmax keeps of a query.
struct QuerySums {
  float max;
  float log_sum;  // in units of ln 2
  float dot;      // of output and its gradient
};
/// REQUIRES: 0 <= query. Behind the row's values: weights become zeros.
template <class Args>
__device__ QuerySums query_sums(const Args& args, const BlockPiece<typename Args::Row>& piece, int length,
                                int query) {
  if (query >= length) return {0, INFINITY, 0};
  const KeptSums<float> kept = args.template kept_sums<float>(piece.row, piece.head, query);
  return {kept.max, kept.log_sum * kLog2E,
          static_cast<const float*>(args.dots)[args.dot_at(piece.row, piece.head, query)]};
}

/// Gradients by weights become those by scores. Rows are queries.
template <class M, bool kSoftmax, int kRows, int kScores>
__device__ void turn_to_slopes(const Scores (&scores)[kRows][kScores], Scores (&slopes)[kRows][kScores],
                               const QuerySums (&of_rows)[kRows][2], const Exponent& exponent, float scale) {
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int n = 0; n < kScores; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float score = scores[m][n][e];
        if constexpr (kSoftmax)
          slopes[m][n][e] = exp2f(exponent.of(score, of_rows[m][e / 2].max) - of_rows[m][e / 2].log_sum) *
                            (slopes[m][n][e] - of_rows[m][e / 2].dot);
        else
          slopes[m][n][e] *= silu_point<M>(score, scale).slope;
      }
}
/// The same, and scores become weights. Rows are keys; sums_of(column), of this lane's queries.
template <class M, bool kSoftmax, int kScores, class SumsOf>
__device__ void turn_back(Scores (&scores)[1][kScores], Scores (&slopes)[1][kScores],
                          const Exponent& exponent, float scale, const SumsOf& sums_of) {
#pragma unroll
  for (int n = 0; n < kScores; ++n)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      QuerySums of_query{};
      if constexpr (kSoftmax) of_query = sums_of(8 * n + side);
#pragma unroll
      for (int e = side; e < 4; e += 2) {
        const float score = scores[0][n][e];
        if constexpr (kSoftmax) {
          scores[0][n][e] = exp2f(exponent.of(score, of_query.max) - of_query.log_sum);
          slopes[0][n][e] = scores[0][n][e] * (slopes[0][n][e] - of_query.dot);
        } else {
          const SiluPoint point = silu_point<M>(score, scale);
          scores[0][n][e] = point.value;
          slopes[0][n][e] *= point.slope;
        }
      }
    }
}

template <class Args, class M, int W, bool kSoftmax>
__global__ void __launch_bounds__(QuerySizes<M, W>::kThreads, 2)
    query_gradient_kernel(const __grid_constant__ Args args) {
  using E = typename M::Element;
  using S = QuerySizes<M, W>;
  extern __shared__ uint4 memory[];
  E* const queries = reinterpret_cast<E*>(memory);
  E* const gradients = queries + S::kOwnElements;
  E* const others = gradients + S::kOwnElements;
  BlockPiece<typename Args::Row> piece;
  if (!args.template begin_piece<S::kOwn>(blockIdx.x, false, piece)) return;
  const auto mask = args.mask(piece.row);
  const int first = piece.first, head = piece.head, length = mask.queries(), all_keys = mask.all_keys();
  const Places<E> at(args, piece.row, head);
  load_rows<M, W, S::kOwn, S::kThreads>(queries, at.q, at.q_step, args.qk_width, first, length);
  load_rows<M, W, S::kOwn, S::kThreads>(gradients, at.d_out, at.out_step, args.v_width, first, length);

  const int row = static_cast<int>(threadIdx.x) / 32 * 16 * S::kRows;
  const int query = first + row + lane_id() / 4;
  const float scale = static_cast<float>(args.scale);
  const Exponent exponent(args);
  QuerySums of_rows[S::kRows][2];
  if constexpr (kSoftmax) {
#pragma unroll
    for (int m = 0; m < S::kRows; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        of_rows[m][half] = query_sums(args, piece, length, query + 16 * m + 8 * half);
  }
  Scores sums[S::kRows][W / 8] = {};
  const auto load = [&](int tile, int stage) {
    E* const to = others + stage * 2 * S::kOtherElements;
    load_rows<M, W, S::kOther, S::kThreads>(to, at.k, at.k_step, args.qk_width, tile * S::kOther, all_keys);
    load_rows<M, W, S::kOther, S::kThreads>(to + S::kOtherElements, at.v, at.v_step, args.v_width,
                                            tile * S::kOther, all_keys);
  };
  const int begin = first + row / S::kUnit * S::kUnit, end = min(begin + S::kUnit, length);
  const KeyTiles<S::kOther> tiles(mask, first, min(first + S::kOwn, length));
  for_tiles<M>(tiles, load, [&](int tile, int stage) {
    const E* const keys = others + stage * 2 * S::kOtherElements;
    const int key = tile * S::kOther;
    if (begin >= end || !mask.any(begin, end, key, key + S::kOther)) return;
    Scores scores[S::kRows][S::kScores] = {}, slopes[S::kRows][S::kScores] = {};
    add_scores<M, W>(scores, queries, row, keys);
    add_scores<M, W>(slopes, gradients, row, keys + S::kOtherElements);
    put_mask(args, piece, scores, query, key + lane_id() % 4 * 2);
    turn_to_slopes<M, kSoftmax>(scores, slopes, of_rows, exponent, scale);
    HiddenScores(args, scores).drop(slopes);
    if (!mask.all(begin, end, key, key + S::kOther)) hide(slopes, mask, query, key + lane_id() % 4 * 2, 0.0F);
    add_weighted<M, W>(sums, slopes, keys);
  });

  float by[S::kRows][2];
#pragma unroll
  for (int m = 0; m < S::kRows; ++m)
    by[m][0] = by[m][1] = kSoftmax ? scale : static_cast<float>(args.scale * args.share());
  store_rows<M, W, S::kRows>(args.results[0], args.are_halves[0], sums, by, args.dq_at(piece.row, head),
                             args.dq_step(), args.qk_width, query, length);
}

template <class Args, class M, int W, bool kSoftmax>
__global__ void __launch_bounds__(KeySizes<M, W>::kThreads, 2)
    key_gradient_kernel(const __grid_constant__ Args args) {
  using E = typename M::Element;
  using S = KeySizes<M, W>;
  extern __shared__ uint4 memory[];
  E* const keys = reinterpret_cast<E*>(memory);
  E* const values = keys + S::kOwnElements;
  E* const others = values + S::kOwnElements;
  BlockPiece<typename Args::Row> piece;
  if (!args.template begin_piece<S::kOwn>(blockIdx.x, true, piece)) return;
  const auto mask = args.mask(piece.row);
  const int first = piece.first, head = piece.head, length = mask.queries(), all_keys = mask.all_keys();
  const Places<E> at(args, piece.row, head);
  load_rows<M, W, S::kOwn, S::kThreads>(keys, at.k, at.k_step, args.qk_width, first, all_keys);
  load_rows<M, W, S::kOwn, S::kThreads>(values, at.v, at.v_step, args.v_width, first, all_keys);

  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int key = first + row + lane_id() / 4;
  const float scale = static_cast<float>(args.scale);
  const Exponent exponent(args);
  Scores dk[1][W / 8] = {}, dv[1][W / 8] = {};
  const auto load = [&](int tile, int stage) {
    E* const to = others + stage * 2 * S::kOtherElements;
    load_rows<M, W, S::kOther, S::kThreads>(to, at.q, at.q_step, args.qk_width, tile * S::kOther, length);
    load_rows<M, W, S::kOther, S::kThreads>(to + S::kOtherElements, at.d_out, at.out_step, args.v_width,
                                            tile * S::kOther, length);
  };
  const int begin = first + row / S::kUnit * S::kUnit, end = min(begin + S::kUnit, all_keys);
  const QueryTiles<S::kOther, decltype(args.mask(piece.row))> tiles{mask, first,
                                                                    min(first + S::kOwn, all_keys)};
  for_tiles<M>(tiles, load, [&](int tile, int stage) {
    const E* const queries = others + stage * 2 * S::kOtherElements;
    const int query = tile * S::kOther + lane_id() % 4 * 2;
    const int last = min((tile + 1) * S::kOther, length);
    if (begin >= end || !mask.any(tile * S::kOther, last, begin, end)) return;
    Scores scores[1][S::kScores] = {}, slopes[1][S::kScores] = {};
    add_scores<M, W>(scores, keys, row, queries);
    add_scores<M, W>(slopes, values, row, queries + S::kOtherElements);
    put_mask_across(args, piece, scores, key, query);
    const HiddenScores hidden(args, scores);
    turn_back<M, kSoftmax>(scores, slopes, exponent, scale,
                           [&](int column) { return query_sums(args, piece, length, query + column); });
    hidden.drop(slopes);
    if (!mask.all(tile * S::kOther, last, begin, end)) {
      hide_across(scores, mask, key, query, 0.0F);
      hide_across(slopes, mask, key, query, 0.0F);
    }
    add_weighted<M, W>(dv, scores, queries + S::kOtherElements);
    add_weighted<M, W>(dk, slopes, queries);
  });

  const float share = kSoftmax ? 1.0F : static_cast<float>(args.share());
  const float of_k[1][2] = {{share * scale, share * scale}}, of_v[1][2] = {{share, share}};
  store_rows<M, W, 1>(args.results[1], args.are_halves[1], dk, of_k, args.dk_at(piece.row, head),
                      args.dk_step(), args.qk_width, key, all_keys);
  store_rows<M, W, 1>(args.results[2], args.are_halves[2], dv, of_v, args.dv_at(piece.row, head),
                      args.dv_step(), args.v_width, key, all_keys);
}

template <class Args, class M, int W, bool kSoftmax>
void launch_backward(const Args& args, StreamRef stream) {
  launch_tiles<QuerySizes<M, W>>(query_gradient_kernel<Args, M, W, kSoftmax>, args, false, stream);
  launch_tiles<KeySizes<M, W>>(key_gradient_kernel<Args, M, W, kSoftmax>, args, true, stream);
}

}  // namespace braid::cuda::attention
