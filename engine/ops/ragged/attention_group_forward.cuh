// Attention's output by groups of warps (sm_90a). The products by the values of one tile run while the scores
// of the next become weights.
#pragma once

#include "engine/ops/ragged/attention_forward.cuh"
#include "engine/ops/ragged/attention_ring.cuh"

namespace braid::cuda::attention {

/// Of a group's queries. Returns how many turns the block has.
template <class E, int W, bool kSoftmax, class Args, class Ring, class GroupTiles>
__device__ int compute_output(const Args& args, const Ring& ring, const Alternation& alternation,
                              const GroupShare<Args>& share, const GroupTiles& tiles) {
  using M = HalfTiles<E>;
  const int query = share.lane_row();
  const float scale = static_cast<float>(args.scale);
  OwnRows<E, W> own;
  own.template load<Ring::S::kOwn>(ring.own_tile(0), share.row);
  ring.release_own();
  Scores scores[1][8], sums[1][W / 8] = {};
  Weights<E> weights;
  RunningSoftmax<1> softmax;
  const Exponent exponent(args);
  float factors[1][2];
  const auto weigh = [&](const Turn& turn) {
    const int key = turn.tile * 64 + lane_id() % 4 * 2;
    if constexpr (kSoftmax) {
      put_mask(args, share.piece, scores, query, key);
      if (!turn.is_whole) hide(scores, share.mask, query, key, -INFINITY);
      softmax.weigh(scores, exponent, factors);
    } else {
      silu_all<M>(scores, scale);
      if (!turn.is_whole) hide(scores, share.mask, query, key, 0.0F);
    }
  };
  const auto begin = [&](const Turn& turn) {
    alternation.take();
    begin_products();
    begin_scores<E, W>(scores, own, ring.tile(turn.index, 0));
    end_group_of_products();
    alternation.give();
    wait_for_products<0>(scores[0]);
    weigh(turn);
    if constexpr (kSoftmax) scale_rows(sums, factors);
    weights.pack(scores);
  };
  const auto turn_over = [&](const Turn& turn, const Turn& after) {
    alternation.take();
    begin_products(sums[0]);
    begin_scores<E, W>(scores, own, ring.tile(after.index, 0));
    end_group_of_products();
    begin_sums<E, W>(sums, weights, ring.tile(turn.index, 1));
    end_group_of_products();
    alternation.give();
    wait_for_products<1>(scores[0]);
    weigh(after);
    wait_for_products<0>(sums[0]);
    ring.release(turn.index);
    if constexpr (kSoftmax) scale_rows(sums, factors);
    weights.pack(scores);
  };
  const auto finish = [&](const Turn& turn) {
    begin_products(sums[0]);
    begin_sums<E, W>(sums, weights, ring.tile(turn.index, 1));
    end_group_of_products();
    wait_for_products<0>(sums[0]);
  };
  const int turns = for_turns(ring, alternation, tiles, begin, turn_over, finish);
  float by[1][2];
  const int length = share.mask.queries();
  finish_rows<kSoftmax>(args, share.piece, length, query, softmax, exponent, by);
  store_rows<M, W, 1>(args.results[0], args.are_halves[0], sums, by,
                      args.out_at(share.piece.row, share.piece.head), args.out_step(), args.v_width, query,
                      length);
  return turns;
}

template <class Args, class E, int W, bool kSoftmax>
__global__ void __launch_bounds__(RingSizes<E, W, 1>::kThreads, 1)
    group_forward_kernel(const __grid_constant__ Args args) {
  extern __shared__ uint4 memory[];
  run_groups<E, W, 1, true>(args, memory, [&](const auto&... of_piece) {
    return compute_output<E, W, kSoftmax>(args, of_piece...);
  });
}

template <class Args, class E, int W, bool kSoftmax>
void launch_group_forward(const Args& args, StreamRef stream) {
  launch_groups<RingSizes<E, W, 1>>(group_forward_kernel<Args, E, W, kSoftmax>, args, false, stream);
}

}  // namespace braid::cuda::attention
