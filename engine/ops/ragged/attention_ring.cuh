// What the blocks of attention kernels by groups of warps have in common (sm_90a). Two groups of four warps
// compute, each with 64 rows of a piece that stays in shared memory; a third copies pairs of tiles that pass
// by into a ring of stages, ahead of them. So nobody waits for a copy to begin, and one group's products run
// while the other turns its scores into weights.
#pragma once

#include "engine/ops/ragged/attention_ring_memory.cuh"

namespace braid::cuda::attention {

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
/// first, last finish(turn). Both begin products between take() and give(). A group that skips tiles may not
/// hold one meanwhile: its stage could be the one that is to be filled next. Returns how many turns the block
/// has.
template <class Ring, class GroupTiles, class Begin, class TurnOver, class Finish>
__device__ int for_turns(const Ring& ring, const Alternation& alternation, GroupTiles tiles,
                         const Begin& begin, const TurnOver& turn_over, const Finish& finish) {
  const auto skip = [&](const Turn& from, const Turn& to) {
    for (int index = from.index + 1; index < to.index; ++index) {
      ring.wait_until_full(index);
      alternation.take();
      alternation.give();
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
  return now.index;
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

/// A piece that is there, or the end of all.
template <class Row>
struct MaybePiece {
  BlockPiece<Row> piece;
  bool is_there;
};

/// By the threads that copy: pieces, of each its own tiles, then the pairs that pass by.
template <bool kOwnsQueries, class E, int W, int kOwnTiles, class Args>
__device__ void copy_pieces(const Args& args, RingMemory<E, W, kOwnTiles> ring, int thread) {
  using S = RingSizes<E, W, kOwnTiles>;
  using Piece = MaybePiece<typename Args::Row>;
  std::int64_t number = thread == 0 ? args.taken(!kOwnsQueries) : 0;
  for (bool is_first = true;; is_first = false) {
    ring.wait_until_own_empty();
    Piece& piece = ring.template piece<Piece>();
    if (thread == 0) {
      piece.is_there = (is_first || Args::kStays) &&
                       args.template begin_piece<S::kOwn>(number, !kOwnsQueries, piece.piece);
      if (Args::kStays) number = args.taken(!kOwnsQueries);
      ring.show_piece();
    }
    wait_for_threads<1, S::kCopying>();
    if (!piece.is_there) break;
    const auto row = piece.piece.row;
    const int first = piece.piece.first;
    const Places<E> at(args, row, piece.piece.head);
    const HeadRows<E> queries[] = {{at.q, at.q_step, args.qk_width}, {at.d_out, at.out_step, args.v_width}};
    const HeadRows<E> keys[] = {{at.k, at.k_step, args.qk_width}, {at.v, at.v_step, args.v_width}};
    const auto& own = kOwnsQueries ? queries : keys;
    const auto& others = kOwnsQueries ? keys : queries;
    const auto mask = args.mask(row);
    const int own_length = kOwnsQueries ? mask.queries() : mask.all_keys();
    const int other_length = kOwnsQueries ? mask.all_keys() : mask.queries();
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i)
      copy_rows_ahead<E, W, S::kOwn, S::kCopying>(ring.own_tile(i), own[i], first, own_length, thread);
    ring.show_own_when_copied();
    auto tiles = tiles_of<kOwnsQueries>(mask, first, first, min(first + S::kOwn, own_length));
    Turn turn = tiles.next();
    for (; turn.is_there(); turn = tiles.next()) {
      ring.wait_until_empty(turn.index);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        copy_rows_ahead<E, W, S::kOther, S::kCopying>(ring.tile(turn.index, i), others[i],
                                                      turn.tile * S::kOther, other_length, thread);
      ring.show_when_copied(turn.index);
    }
    ring.go_on(turn.index);
  }
  ring.show_own_when_copied();  // the end
  wait_for_copies<0>();
}

/// The whole of a block. compute(ring, alternation, share, tiles) is called by the groups that compute, for
/// each piece; it releases the own tiles and returns how many turns the block has.
template <class E, int W, int kOwnTiles, bool kOwnsQueries, class Args, class Compute>
__device__ void run_groups(const Args& args, void* memory, const Compute& compute) {
  using S = RingSizes<E, W, kOwnTiles>;
  RingMemory<E, W, kOwnTiles> ring(memory);
  if (threadIdx.x == 0) ring.begin();
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(~0U, thread / 32, 0);
  if (thread >= S::kComputing) {
    keep_registers<kCopyingRegisters>();
    copy_pieces<kOwnsQueries>(args, ring, thread - S::kComputing);
  } else {
    take_registers<kComputingRegisters>();
    const Alternation alternation(warp / 4);
    for (;;) {
      ring.wait_until_own_full();
      const auto now = ring.template piece<MaybePiece<typename Args::Row>>();
      if (!now.is_there) break;
      GroupShare<Args> share{now.piece, args.mask(now.piece.row), warp * 16, 0, 0};
      const int own_length = kOwnsQueries ? share.mask.queries() : share.mask.all_keys();
      share.begin = now.piece.first + share.group_row();
      share.end = min(share.begin + 64, own_length);
      ring.go_on(compute(ring, alternation, share,
                         tiles_of<kOwnsQueries>(share.mask, now.piece.first, share.begin, share.end)));
    }
    alternation.end();
  }
}

/// As many blocks as the device has processors, where these stay.
template <class S, class Args, class Kernel>
void launch_groups(Kernel kernel, const Args& args, bool of_keys, StreamRef stream) {
  unsigned blocks = args.blocks(S::kOwn, of_keys);
  if (blocks == 0) return;
  if (Args::kStays) {
    int device = 0, processors = 0;
    BRAID_CUDA_CHECK(cudaGetDevice(&device));
    BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    blocks = std::min(blocks, static_cast<unsigned>(processors));
  }
  // Every thread that gets here sets the same limit, so none disturbs another.
  BRAID_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kBytes)));
  launch(kernel, blocks, S::kThreads, S::kBytes, stream, args);
}

}  // namespace braid::cuda::attention
