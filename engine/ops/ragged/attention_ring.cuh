// What the blocks of attention kernels by groups of warps have in common (sm_90a). Two groups of four warps
// compute, each with 64 rows of a piece that stays in shared memory; a third copies pairs of tiles that pass
// by into a ring of stages, ahead of them. So nobody waits for a copy to begin, and one group's products run
// while the other turns its scores into weights.
#pragma once

#include "engine/ops/ragged/attention_blocks.cuh"

namespace braid::cuda::attention {

inline constexpr int kGroupAlignment = 1024;

/// Own tiles are queries (and the output's gradients), by which pairs of keys and values pass, or keys and
/// values, by which pairs of queries and the output's gradients pass.
template <class E, int W, int kOwnTileCount>
struct RingSizes {
  static constexpr int kCopying = 128, kComputing = 256;  // threads
  static constexpr int kThreads = kComputing + kCopying;
  static constexpr int kOwn = 128, kOther = 64, kOwnTiles = kOwnTileCount, kStages = 4;
  static constexpr int kOwnElements = kOwn * W, kOtherElements = kOther * W;
  static constexpr std::size_t kBytes =
      (kOwnTiles * kOwnElements + 2 * kStages * kOtherElements) * sizeof(E) +
      2 * kStages * sizeof(std::uint64_t) + kGroupAlignment;
};
/// Registers of a thread that computes, and of one that copies: 3 x 168 in all.
inline constexpr int kComputingRegisters = 232, kCopyingRegisters = 40;

/// Where a block's tiles lie. The pair of turn t is in stage t % kStages, which is filled and emptied in
/// turns.
template <class E, int W, int kOwnTileCount>
struct RingMemory {
  using S = RingSizes<E, W, kOwnTileCount>;

  __device__ explicit RingMemory(void* memory)
      : own_(static_cast<E*>(memory) +
             (kGroupAlignment - shared_address(memory) % kGroupAlignment) % kGroupAlignment / sizeof(E)),
        others_(own_ + S::kOwnTiles * S::kOwnElements),
        full_(reinterpret_cast<std::uint64_t*>(others_ + 2 * S::kStages * S::kOtherElements)),
        empty_(full_ + S::kStages) {}

  __device__ E* own_tile(int i) const { return own_ + i * S::kOwnElements; }
  /// Tile i of the pair of a turn.
  __device__ E* tile(int turn, int i) const {
    return others_ + (turn % S::kStages * 2 + i) * S::kOtherElements;
  }
  /// By the block's first thread, before all wait for each other.
  __device__ void begin() const {
    for (int stage = 0; stage < S::kStages; ++stage) {
      begin_barrier(full_ + stage, S::kCopying);
      begin_barrier(empty_ + stage, S::kComputing / 32);
    }
  }
  /// Of those that compute: until the turn's tiles are there; then, by each warp, that it is done with them.
  __device__ void wait_until_full(int turn) const {
    wait_for(full_ + turn % S::kStages, turn / S::kStages & 1);
    show_to_groups();
  }
  __device__ void release(int turn) const {
    __syncwarp();
    if (lane_id() == 0) arrive(empty_ + turn % S::kStages);
  }
  /// Of those that copy.
  __device__ void wait_until_empty(int turn) const {
    if (turn >= S::kStages) wait_for(empty_ + turn % S::kStages, (turn / S::kStages & 1) ^ 1);
  }
  __device__ void show_when_copied(int turn) const { arrive_when_copied(full_ + turn % S::kStages); }

 private:
  E *own_, *others_;
  std::uint64_t *full_, *empty_;
};

/// Rows of one head: the first value, the step from a row to the next, and how many numbers are not zeros.
template <class E>
struct HeadRows {
  const E* at;
  std::int64_t step;
  int width;
};

/// Begins to copy kRows rows from `first` on by kThreads threads, of which this is `thread`. Rows behind
/// `length`, and columns behind the width, are zeros.
template <class E, int W, int kRows, int kThreads>
__device__ void copy_rows_ahead(E* to, const HeadRows<E>& from, int first, int length, int thread) {
  constexpr int kPacks = W / kPack<E>, kTurnRows = kThreads / kPacks;
  static_assert(kTurnRows % 8 == 0 && kRows % kTurnRows == 0);  // so that all turns swap pieces alike
  const int row = thread / kPacks, column = thread % kPacks * kPack<E>;
  E* const at = to + GroupTiles<E>::template place<W, kRows>(row, column);
  const E* source = from.at + (first + row) * from.step + column;
  const int rows = column < from.width ? length - first - row : 0;
#pragma unroll
  for (int turn = 0; turn < kRows / kTurnRows; ++turn) {
    const bool is_there = turn * kTurnRows < rows;
    copy_ahead(at + turn * kTurnRows * 64, is_there ? source : from.at, is_there);
    source += kTurnRows * from.step;
  }
}

/// A tile that passes by, which of the block's it is, and whether all of it is seen. Behind the last one
/// `tile` is -1.
struct Turn {
  int tile = -1, index = -1;
  bool is_whole = false;
  __device__ bool is_there() const { return tile >= 0; }
  __device__ bool is_beside(const Turn& next) const { return next.is_there() && next.index == index + 1; }
};
/// What a block of keys or queries, and a group or the whole of it, has to do with a tile of the row.
struct TileRelation {
  bool of_block, of_group, is_whole;
};
/// Goes through a group's tiles of a row. relation(tile) is of this lane's tile; whole warps call next().
template <class Relation>
class Tiles {
 public:
  __device__ Tiles(int length, const Relation& relation) : length_(length), relation_(relation) {}

  __device__ Turn next() {
    while (of_group_ == 0) {
      before_ += __popc(of_block_);
      base_ += 32;
      if (base_ * 64 >= length_) return {-1, before_};
      const int tile = base_ + lane_id();
      TileRelation is{};
      if (tile * 64 < length_) is = relation_(tile);
      of_block_ = __ballot_sync(~0U, is.of_block);
      of_group_ = __ballot_sync(~0U, is.of_group);
      whole_ = __ballot_sync(~0U, is.is_whole);
    }
    const int bit = __ffs(static_cast<int>(of_group_)) - 1;
    of_group_ &= of_group_ - 1;
    return {base_ + bit, before_ + __popc(of_block_ & ((1U << bit) - 1)), (whole_ >> bit & 1) != 0};
  }

 private:
  int length_, before_ = 0, base_ = -32;  // before_: tiles of the block in front of base_
  unsigned of_block_ = 0, of_group_ = 0, whole_ = 0;
  Relation relation_;
};

/// Of keys that pass by queries: those of the piece from `first` on, and of the group's [begin, end).
template <class Mask>
__device__ auto key_tiles(const Mask& mask, int first, int begin, int end) {
  return Tiles(mask.all_keys(), [=](int tile) -> TileRelation {
    const int key = tile * 64;
    return {mask.any(first, min(first + 128, mask.queries()), key, key + 64),
            begin < end && mask.any(begin, end, key, key + 64), mask.all(begin, end, key, key + 64)};
  });
}
/// Of queries that pass by keys.
template <class Mask>
__device__ auto query_tiles(const Mask& mask, int first, int begin, int end) {
  return Tiles(mask.queries(), [=](int tile) -> TileRelation {
    const int query = tile * 64, last = min(query + 64, mask.queries());
    return {mask.any(query, last, first, min(first + 128, mask.all_keys())),
            begin < end && mask.any(query, last, begin, end), mask.all(query, last, begin, end)};
  });
}
template <bool kOwnsQueries, class Mask>
__device__ auto tiles_of(const Mask& mask, int first, int begin, int end) {
  if constexpr (kOwnsQueries)
    return key_tiles(mask, first, begin, end);
  else
    return query_tiles(mask, first, begin, end);
}

/// Goes through a group's turns. begin(turn), then for neighbours turn_over(turn, next), which releases the
/// first, last finish(turn). A group that skips tiles may not hold one meanwhile: its stage could be the one
/// that is to be filled next.
template <class Ring, class GroupTiles, class Begin, class TurnOver, class Finish>
__device__ void for_turns(const Ring& ring, GroupTiles tiles, const Begin& begin, const TurnOver& turn_over,
                          const Finish& finish) {
  const auto skip = [&](const Turn& from, const Turn& to) {
    for (int index = from.index + 1; index < to.index; ++index) {
      ring.wait_until_full(index);
      ring.release(index);
    }
  };
  Turn now = tiles.next();
  skip(Turn{}, now);
  while (now.is_there()) {
    ring.wait_until_full(now.index);
    begin(now);
    Turn after = tiles.next();
    for (; now.is_beside(after); after = tiles.next()) {
      ring.wait_until_full(after.index);
      turn_over(now, after);
      now = after;
    }
    finish(now);
    ring.release(now.index);
    skip(now, after);
    now = after;
  }
}

/// Factor A of a group's products: 16 rows a warp, from row 16 warp of the tile, in W columns.
template <class E, int W>
struct OwnRows {
  std::uint32_t at[W / 16][4];

  template <int kRows>
  __device__ void load(const E* tile, int row) {
    const int lane = lane_id();
#pragma unroll
    for (int step = 0; step < W / 16; ++step)
      load_matrices<false>(at[step], tile + GroupTiles<E>::template place<W, kRows>(
                                                row + lane % 16, 16 * step + lane / 16 * 8));
  }
};
/// A group's scores as factor A of the products by tiles that pass by.
template <class E>
struct Weights {
  std::uint32_t at[4][4];

  __device__ void pack(const Scores (&scores)[1][8]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const auto a = HalfTiles<E>::factor(scores[0], step);
#pragma unroll
      for (int i = 0; i < 4; ++i) at[step][i] = a.at[i];
    }
  }
};

/// Begins scores = own rows times all 64 rows of a tile.
template <class E, int W>
__device__ void begin_scores(Scores (&scores)[1][8], const OwnRows<E, W>& own, const E* other) {
  const GroupMatrix matrix(other);
  multiply_groups<E, false>(scores[0], own.at[0], matrix.at(0, 0));
#pragma unroll
  for (int step = 1; step < W / 16; ++step)
    multiply_groups<E, true>(scores[0], own.at[step], matrix.at(step / 4 * 64, step % 4 * 16));
}
/// The same with rows [row, row + 64) of a tile of kRows that stays.
template <class E, int W, int kRows>
__device__ void begin_scores(Scores (&scores)[1][8], const E* own, int row, const E* other) {
  const GroupMatrix mine(own), matrix(other);
  multiply_groups<E, false>(scores[0], mine.at(row, 0), matrix.at(0, 0));
#pragma unroll
  for (int step = 1; step < W / 16; ++step)
    multiply_groups<E, true>(scores[0], mine.at(step / 4 * kRows + row, step % 4 * 16),
                             matrix.at(step / 4 * 64, step % 4 * 16));
}
/// Begins sums += weights times the rows of a tile. REQUIRES: begin_products(sums) was before.
template <class E, int W>
__device__ void begin_sums(Scores (&sums)[1][W / 8], const Weights<E>& weights, const E* other) {
  const GroupMatrix matrix(other);
#pragma unroll
  for (int step = 0; step < 4; ++step)
    multiply_groups_across<E>(sums[0], weights.at[step], matrix.at(16 * step, 0));
}

/// A group's share of a piece: rows [begin, end), of which this warp has those from `row` of the piece on.
template <class Args>
struct GroupShare {
  BlockPiece<typename Args::Row> piece;
  typename Args::Mask mask;
  int row, begin, end;

  __device__ int group_row() const { return row / 64 * 64; }
  /// The row that this lane has, and 8 behind it.
  __device__ int lane_row() const { return piece.first + row + lane_id() / 4; }
};

/// The whole of a block. compute(ring, share, tiles) is called by the groups that compute.
template <class E, int W, int kOwnTiles, bool kOwnsQueries, class Args, class Compute>
__device__ void run_groups(const Args& args, void* memory, const Compute& compute) {
  using S = RingSizes<E, W, kOwnTiles>;
  GroupShare<Args> share;
  if (!args.template begin_piece<S::kOwn>(!kOwnsQueries, share.piece)) return;
  const RingMemory<E, W, kOwnTiles> ring(memory);
  if (threadIdx.x == 0) ring.begin();
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(~0U, thread / 32, 0);
  const int first = share.piece.first;
  const Places<E> at(args, share.piece.row, share.piece.head);
  const HeadRows<E> queries[] = {{at.q, at.q_step, args.qk_width}, {at.d_out, at.out_step, args.v_width}};
  const HeadRows<E> keys[] = {{at.k, at.k_step, args.qk_width}, {at.v, at.v_step, args.v_width}};
  const auto& own = kOwnsQueries ? queries : keys;
  const auto& others = kOwnsQueries ? keys : queries;
  share.mask = args.mask(share.piece.row);
  const int own_length = kOwnsQueries ? share.mask.queries() : share.mask.all_keys();
  const int other_length = kOwnsQueries ? share.mask.all_keys() : share.mask.queries();
  if (thread >= S::kComputing) {
    keep_registers<kCopyingRegisters>();
    auto tiles = tiles_of<kOwnsQueries>(share.mask, first, first, min(first + S::kOwn, own_length));
    for (Turn turn = tiles.next(); turn.is_there(); turn = tiles.next()) {
      ring.wait_until_empty(turn.index);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        copy_rows_ahead<E, W, S::kOther, S::kCopying>(
            ring.tile(turn.index, i), others[i], turn.tile * S::kOther, other_length, thread - S::kComputing);
      ring.show_when_copied(turn.index);
    }
    wait_for_copies<0>();
  } else {
    take_registers<kComputingRegisters>();
    share.row = warp * 16;
    share.begin = first + share.group_row();
    share.end = min(share.begin + 64, own_length);
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i)
      copy_rows_ahead<E, W, S::kOwn, S::kComputing>(ring.own_tile(i), own[i], first, own_length, thread);
    end_group_of_copies();
    wait_for_copies<0>();
    show_to_groups();
    wait_for_threads<1, S::kComputing>();
    compute(ring, share, tiles_of<kOwnsQueries>(share.mask, first, share.begin, share.end));
  }
}

}  // namespace braid::cuda::attention
