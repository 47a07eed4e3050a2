// Attention's gradients by groups of warps (sm_90a), in the two launches of attention_backward.cuh.
#pragma once

#include "engine/ops/ragged/attention_backward.cuh"
#include "engine/ops/ragged/attention_ring.cuh"

namespace braid::cuda::attention {

/// dq of a group's queries. The products by the keys of one tile run while the scores of the next become
/// slopes. Returns how many turns the block has.
template <class E, int W, bool kSoftmax, class Args, class Ring, class GroupTiles>
__device__ int compute_query_gradient(const Args& args, const Ring& ring, const Alternation& alternation,
                                      const GroupShare<Args>& share, const GroupTiles& tiles) {
  using M = HalfTiles<E>;
  const auto& piece = share.piece;
  const Exponent exponent(args);
  const int query = share.lane_row();
  const float scale = static_cast<float>(args.scale);
  OwnRows<E, W> queries;
  queries.template load<Ring::S::kOwn>(ring.own_tile(0), share.row);
  QuerySums of_rows[1][2];
  if constexpr (kSoftmax)
    for (int half = 0; half < 2; ++half)
      of_rows[0][half] = query_sums(args, piece, share.mask.queries(), query + 8 * half);
  Scores scores[1][8], slopes[1][8], sums[1][W / 8] = {};
  Weights<E> weights;
  const auto begin_tile = [&](int index) {
    begin_scores<E, W>(scores, queries, ring.tile(index, 0));
    begin_scores<E, W, Ring::S::kOwn>(slopes, ring.own_tile(1), share.group_row(), ring.tile(index, 1));
    end_group_of_products();
  };
  const auto turn_back = [&](const Turn& turn) {
    const int key = turn.tile * 64 + lane_id() % 4 * 2;
    put_mask(args, piece, scores, query, key);
    turn_to_slopes<M, kSoftmax>(scores, slopes, of_rows, exponent, scale);
    HiddenScores(args, scores).drop(slopes);
    if (!turn.is_whole) hide(slopes, share.mask, query, key, 0.0F);
  };
  const auto begin = [&](const Turn& turn) {
    alternation.take();
    begin_products();
    begin_tile(turn.index);
    alternation.give();
    wait_for_products<0>(scores[0], slopes[0]);
    turn_back(turn);
    weights.pack(slopes);
  };
  const auto turn_over = [&](const Turn& turn, const Turn& after) {
    alternation.take();
    begin_products(sums[0]);
    begin_tile(after.index);
    begin_sums<E, W>(sums, weights, ring.tile(turn.index, 0));
    end_group_of_products();
    alternation.give();
    wait_for_products<1>(scores[0], slopes[0]);
    turn_back(after);
    wait_for_products<0>(sums[0]);
    ring.release(turn.index);
    weights.pack(slopes);
  };
  const auto finish = [&](const Turn& turn) {
    begin_products(sums[0]);
    begin_sums<E, W>(sums, weights, ring.tile(turn.index, 0));
    end_group_of_products();
    wait_for_products<0>(sums[0]);
  };
  const int turns = for_turns(ring, alternation, tiles, begin, turn_over, finish);
  ring.release_own();
  const float last = static_cast<float>(kSoftmax ? args.scale : args.scale * args.share());
  const float by[1][2] = {{last, last}};
  store_rows<M, W, 1>(args.results[0], args.are_halves[0], sums, by, args.dq_at(piece.row, piece.head),
                      args.dq_step(), args.qk_width, query, share.mask.queries());
  return turns;
}

/// dk and dv of a group's keys. Returns how many turns the block has.
template <class E, int W, bool kSoftmax, class Args, class Ring, class GroupTiles>
__device__ int compute_key_gradients(const Args& args, const Ring& ring, const Alternation& alternation,
                                     const GroupShare<Args>& share, const GroupTiles& tiles) {
  using M = HalfTiles<E>;
  constexpr int kOwn = Ring::S::kOwn;
  const auto& piece = share.piece;
  const Exponent exponent(args);
  const int key = share.lane_row();
  const float scale = static_cast<float>(args.scale);
  Scores scores[1][8], slopes[1][8], dk[1][W / 8] = {}, dv[1][W / 8] = {};
  Weights<E> weights, turned;
  const auto turn_tile_back = [&](const Turn& turn) {
    const int query = turn.tile * 64 + lane_id() % 4 * 2;
    put_mask_across(args, piece, scores, key, query);
    const HiddenScores hidden(args, scores);
    turn_back<M, kSoftmax>(scores, slopes, exponent, scale, [&](int column) {
      return query_sums(args, piece, share.mask.queries(), query + column);
    });
    hidden.drop(slopes);
    if (!turn.is_whole) {
      hide_across(scores, share.mask, key, query, 0.0F);
      hide_across(slopes, share.mask, key, query, 0.0F);
    }
    weights.pack(scores);
    turned.pack(slopes);
  };
  const auto begin_score_products = [&](int index) {
    begin_products();
    begin_scores<E, W, kOwn>(scores, ring.own_tile(0), share.group_row(), ring.tile(index, 0));
    end_group_of_products();
  };
  const auto begin_slope_products = [&](int index) {
    begin_products();
    begin_scores<E, W, kOwn>(slopes, ring.own_tile(1), share.group_row(), ring.tile(index, 1));
    end_group_of_products();
  };
  const auto begin_sum_products = [&](int index) {
    begin_products(dk[0], dv[0]);
    begin_sums<E, W>(dv, weights, ring.tile(index, 1));
    begin_sums<E, W>(dk, turned, ring.tile(index, 0));
    end_group_of_products();
  };
  const auto begin = [&](const Turn& turn) {
    alternation.take();
    begin_score_products(turn.index);
    begin_slope_products(turn.index);
    alternation.give();
    wait_for_products<0>(scores[0], slopes[0]);
    turn_tile_back(turn);
  };
  const auto turn_over = [&](const Turn& turn, const Turn& after) {
    alternation.take();
    begin_sum_products(turn.index);
    begin_score_products(after.index);
    wait_for_products<1>(dk[0], dv[0]);
    ring.release(turn.index);
    begin_slope_products(after.index);
    alternation.give();
    wait_for_products<0>(scores[0], slopes[0]);
    turn_tile_back(after);
  };
  const auto finish = [&](const Turn& turn) {
    begin_sum_products(turn.index);
    wait_for_products<0>(dk[0], dv[0]);
  };
  const int turns = for_turns(ring, alternation, tiles, begin, turn_over, finish);
  ring.release_own();
  const float by = kSoftmax ? 1.0F : static_cast<float>(args.share());
  const float of_k[1][2] = {{by * scale, by * scale}}, of_v[1][2] = {{by, by}};
  const int keys = share.mask.all_keys();
  store_rows<M, W, 1>(args.results[1], args.are_halves[1], dk, of_k, args.dk_at(piece.row, piece.head),
                      args.dk_step(), args.qk_width, key, keys);
  store_rows<M, W, 1>(args.results[2], args.are_halves[2], dv, of_v, args.dv_at(piece.row, piece.head),
                      args.dv_step(), args.v_width, key, keys);
  return turns;
}

template <class Args, class E, int W, bool kSoftmax>
__global__ void __launch_bounds__(RingSizes<E, W, 2>::kThreads, 1)
    group_query_gradient_kernel(const __grid_constant__ Args args) {
  extern __shared__ uint4 memory[];
  run_groups<E, W, 2, true>(args, memory, [&](const auto&... of_piece) {
    return compute_query_gradient<E, W, kSoftmax>(args, of_piece...);
  });
}
template <class Args, class E, int W, bool kSoftmax>
__global__ void __launch_bounds__(RingSizes<E, W, 2>::kThreads, 1)
    group_key_gradient_kernel(const __grid_constant__ Args args) {
  extern __shared__ uint4 memory[];
  run_groups<E, W, 2, false>(args, memory, [&](const auto&... of_piece) {
    return compute_key_gradients<E, W, kSoftmax>(args, of_piece...);
  });
}

template <class Args, class E, int W, bool kSoftmax>
void launch_group_backward(const Args& args, StreamRef stream) {
  using S = RingSizes<E, W, 2>;
  launch_groups<S>(group_query_gradient_kernel<Args, E, W, kSoftmax>, args, false, stream);
  launch_groups<S>(group_key_gradient_kernel<Args, E, W, kSoftmax>, args, true, stream);
}

}  // namespace braid::cuda::attention
