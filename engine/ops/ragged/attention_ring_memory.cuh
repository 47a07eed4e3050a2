// Where tiles lie in shared memory for attention by groups of warps (attention_ring.cuh), with the barriers
// that say which of them are full and which are empty, and how two groups begin products by turns (sm_90a).
#pragma once

#include "engine/ops/ragged/attention_blocks.cuh"

namespace braid::cuda::attention {

inline constexpr int kGroupAlignment = 1024;

/// Own tiles are queries (and the output's gradients), by which pairs of keys and values pass, or keys and
/// values, by which pairs of queries and the output's gradients pass. Blocks stay for one piece after the
/// other; the own tiles of the next one are copied while one is computed with.
template <class E, int W, int kOwnTileCount>
struct RingSizes {
  static constexpr int kCopying = 128, kComputing = 256;  // threads
  static constexpr int kThreads = kComputing + kCopying;
  static constexpr int kOwn = 128, kOther = 64, kOwnTiles = kOwnTileCount;
  static constexpr int kOwnStages = 2, kStages = kOwnTiles == 1 ? 5 : 3;
  static constexpr int kOwnElements = kOwn * W, kOtherElements = kOther * W;
  static constexpr std::size_t kPieceBytes = 64;
  static constexpr std::size_t kBytes =
      (kOwnStages * kOwnTiles * kOwnElements + 2 * kStages * kOtherElements) * sizeof(E) +
      2 * (kStages + kOwnStages) * sizeof(std::uint64_t) + kOwnStages * kPieceBytes + kGroupAlignment;
};
/// Registers of a thread that computes, and of one that copies: 3 x 168 in all.
inline constexpr int kComputingRegisters = 232, kCopyingRegisters = 40;

/// Where a block's tiles lie. The pair of turn t is in stage t % kStages, which is filled and emptied in
/// turns; turns are counted over all of a block's pieces. So are pieces, whose own tiles are in stage
/// n % kOwnStages.
template <class E, int W, int kOwnTileCount>
class RingMemory {
 public:
  using S = RingSizes<E, W, kOwnTileCount>;

  __device__ explicit RingMemory(void* memory)
      : own_(static_cast<E*>(memory) +
             (kGroupAlignment - shared_address(memory) % kGroupAlignment) % kGroupAlignment / sizeof(E)),
        others_(own_ + S::kOwnStages * S::kOwnTiles * S::kOwnElements),
        full_(reinterpret_cast<std::uint64_t*>(others_ + 2 * S::kStages * S::kOtherElements)),
        empty_(full_ + S::kStages),
        own_full_(empty_ + S::kStages),
        own_empty_(own_full_ + S::kOwnStages),
        pieces_(own_empty_ + S::kOwnStages) {}

  /// By the block's first thread, before all wait for each other.
  __device__ void begin() const {
    for (int stage = 0; stage < S::kStages; ++stage) {
      begin_barrier(full_ + stage, S::kCopying);
      begin_barrier(empty_ + stage, S::kComputing / 32);
    }
    for (int stage = 0; stage < S::kOwnStages; ++stage) {
      begin_barrier(own_full_ + stage, S::kCopying + 1);  // and the thread that writes what the piece is
      begin_barrier(own_empty_ + stage, S::kComputing / 32);
    }
  }
  /// The next piece, behind so many turns of those before it.
  __device__ void go_on(int turns) {
    ++piece_;
    first_ += turns;
  }
  __device__ E* own_tile(int i) const {
    return own_ + (piece_ % S::kOwnStages * S::kOwnTiles + i) * S::kOwnElements;
  }
  /// What the piece is.
  template <class Piece>
  __device__ Piece& piece() const {
    static_assert(sizeof(Piece) <= S::kPieceBytes);
    return *reinterpret_cast<Piece*>(reinterpret_cast<std::byte*>(pieces_) +
                                     piece_ % S::kOwnStages * S::kPieceBytes);
  }
  /// Tile i of the pair of a turn of the piece.
  __device__ E* tile(int turn, int i) const { return others_ + (stage(turn) * 2 + i) * S::kOtherElements; }
  /// Of those that compute: until the turn's tiles are there; then, by each warp, that it is done with them.
  __device__ void wait_until_full(int turn) const {
    wait_for(full_ + stage(turn), (first_ + turn) / S::kStages & 1);
    show_to_groups();
  }
  __device__ void release(int turn) const { arrive_warp(empty_ + stage(turn)); }
  /// The same for the piece's own tiles.
  __device__ void wait_until_own_full() const {
    wait_for(own_full_ + piece_ % S::kOwnStages, piece_ / S::kOwnStages & 1);
    show_to_groups();
  }
  __device__ void release_own() const { arrive_warp(own_empty_ + piece_ % S::kOwnStages); }
  /// Of those that copy.
  __device__ void wait_until_empty(int turn) const {
    if (first_ + turn >= S::kStages) wait_for(empty_ + stage(turn), ((first_ + turn) / S::kStages & 1) ^ 1);
  }
  __device__ void show_when_copied(int turn) const { arrive_when_copied(full_ + stage(turn)); }
  __device__ void wait_until_own_empty() const {
    if (piece_ >= S::kOwnStages)
      wait_for(own_empty_ + piece_ % S::kOwnStages, (piece_ / S::kOwnStages & 1) ^ 1);
  }
  __device__ void show_own_when_copied() const { arrive_when_copied(own_full_ + piece_ % S::kOwnStages); }
  __device__ void show_piece() const { arrive(own_full_ + piece_ % S::kOwnStages); }

 private:
  __device__ int stage(int turn) const { return (first_ + turn) % S::kStages; }
  static __device__ void arrive_warp(std::uint64_t* barrier) {
    __syncwarp();
    if (lane_id() == 0) arrive(barrier);
  }

  E *own_, *others_;
  std::uint64_t *full_, *empty_, *own_full_, *own_empty_, *pieces_;
  int piece_ = 0, first_ = 0;  // first_: turns of the pieces before
};

/// Two groups begin products by turns, one for each tile of the block: while one turns scores into weights
/// the other's products run. Group 0 is first.
class Alternation {
 public:
  __device__ explicit Alternation(int group) : group_(group) {
    if (group_ == 1) give();
  }
  __device__ void take() const { wait_for_threads<kThreads>(kFirstBarrier + group_); }
  __device__ void give() const { arrive_for_threads<kThreads>(kFirstBarrier + (group_ ^ 1)); }
  /// So that nobody is waited for when the block ends.
  __device__ void end() const {
    if (group_ == 0) take();
  }

 private:
  static constexpr int kThreads = 256, kFirstBarrier = 2;
  int group_;
};

}  // namespace braid::cuda::attention
