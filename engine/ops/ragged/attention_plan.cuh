// The rows of a batch as blocks of attention kernels take them: the longest first, cut into tiles of
// kPlanTile values. Made on the device from
// offsets and targets, which are checked there: a bad row is reported, and is empty.
#pragma once

#include "engine/ops/ragged/attention_node.h"
#include "engine/ops/ragged/ragged_device.cuh"

namespace braid::cuda::attention {

inline constexpr int kPlanTile = 128;

struct PlannedRow {
  std::int64_t begin;
  std::int32_t length, history;  // history: values in front of the candidates
};

/// In device memory.
struct Plan {
  PlannedRow* rows;           // [count], the longest first
  std::int32_t* first_tiles;  // [count + 1]: tiles of the rows before
  std::int32_t* tile_rows;    // of each tile, its row
  std::int64_t* longest;      // [1]
  unsigned* taken;            // [2]: pieces that blocks have taken, of queries and of keys; zeros at first
  std::int32_t count;

  /// A row, and where a tile of it begins.
  struct Piece {
    PlannedRow row;
    std::int32_t first;
  };
  /// Tile `tile` of all, of a row from its end or from its front. False: there is none.
  __device__ bool piece(std::int64_t tile, bool from_front, Piece& to) const {
    if (tile >= first_tiles[count]) return false;
    const std::int32_t r = tile_rows[tile];
    const std::int32_t tiles = first_tiles[r + 1] - first_tiles[r];
    to.row = rows[r];
    const auto place = static_cast<std::int32_t>(tile - first_tiles[r]);
    to.first = (from_front ? place : tiles - 1 - place) * kPlanTile;
    return true;
  }
};

/// What a plan is made from, and how large it is.
class Planner {
 public:
  Planner(const PrepareContext& c, const braid::attention::Inputs& in);

  std::size_t bytes() const;
  /// No batch has more tiles.
  std::int64_t most_tiles() const { return values_ / kPlanTile + rows_; }
  std::int64_t values() const { return values_; }
  /// Makes the plan in `memory`, of bytes() bytes that are 64-byte aligned.
  Plan make(const KernelArgs& a, void* memory) const;

 private:
  std::int64_t values_, rows_, max_length_;
  DeviceOffsetsInput offsets_;
  int targets_;  // input; -1: none
  bool are_wide_ = false;
};

/// Zeros in an output, [values, ...] of `row` bytes each, `step` bytes from one to the next, behind the
/// values that belong to rows.
void zero_room(const KernelArgs& a, const DeviceOffsets& offsets, void* out, std::size_t row,
               std::size_t step);

}  // namespace braid::cuda::attention
