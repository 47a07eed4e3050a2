// How the elements of up to three operands meet in a broadcast output (NumPy and TensorFlow rules). Made in
// `prepare`: axes of size 1 are dropped and neighbouring axes on which every operand behaves alike are
// joined, so most shapes end up with one or two axes. `for_tiles` then walks any range of output elements in
// rows along the innermost axis, on which each operand has stride 1 or 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/ir/shape.h"

namespace braid {

class BroadcastPlan {
 public:
  static constexpr int kMaxOperands = 3;
  static constexpr int kMaxAxes = 16;  // after joining
  using Positions = std::array<std::int64_t, kMaxOperands>;

  /// REQUIRES: static shapes; the operands broadcast to `out`. Throws: InvalidArgument for more than kMaxAxes
  /// axes.
  BroadcastPlan(std::initializer_list<const Shape*> operands, const Shape& out);

  struct Axis {
    std::int64_t size;
    Positions strides;
  };
  /// Outermost first; at least one.
  const std::vector<Axis>& axes() const { return axes_; }

  std::int64_t elements() const { return elements_; }
  /// 1 or 0: what operand k does along a run.
  std::int64_t inner_stride(int k) const { return axes_.back().strides[static_cast<std::size_t>(k)]; }

  /// What operand k does from one row of a tile to the next.
  std::int64_t row_stride(int k) const {
    return axes_.size() < 2 ? 0 : axes_[axes_.size() - 2].strides[static_cast<std::size_t>(k)];
  }

  /// Calls tile(out_position, operand_positions, rows, count) for the tiles that cover output elements
  /// [begin, end): `rows` whole runs of `count` elements one after the other, or one part of a run.
  template <class Tile>
  void for_tiles(std::int64_t begin, std::int64_t end, Tile tile) const;
  /// The same run by run: run(out_position, operand_positions, count).
  template <class Run>
  void for_runs(std::int64_t begin, std::int64_t end, Run run) const {
    for_tiles(begin, end, [&](std::int64_t at, Positions from, std::int64_t rows, std::int64_t count) {
      for (std::int64_t r = 0; r < rows; ++r, at += count) {
        run(at, from, count);
        for (int k = 0; k < kMaxOperands; ++k) from[static_cast<std::size_t>(k)] += row_stride(k);
      }
    });
  }

 private:
  /// Where a walk over the outer axes is: an odometer, because divisions cost more than a short run.
  struct Walk {
    std::array<std::int64_t, kMaxAxes> index;
    Positions positions;
  };
  Walk walk_from(std::int64_t outer) const;
  /// Moves by `rows` along the second innermost axis. REQUIRES: not beyond its end.
  void advance(Walk& walk, std::int64_t rows) const;
  std::int64_t rows_left(const Walk& walk) const {
    return axes_.size() < 2 ? 1 : axes_[axes_.size() - 2].size - walk.index[axes_.size() - 2];
  }

  std::vector<Axis> axes_;
  std::int64_t elements_ = 0;
};

template <class Tile>
void BroadcastPlan::for_tiles(std::int64_t begin, std::int64_t end, Tile tile) const {
  if (begin >= end) return;
  const Axis& inner = axes_.back();
  Walk walk = walk_from(begin / inner.size);
  std::int64_t column = begin % inner.size;
  for (std::int64_t at = begin; at < end; column = 0) {
    const std::int64_t left = end - at;
    const bool whole = column == 0 && left >= inner.size;
    const std::int64_t rows = whole ? std::min(left / inner.size, rows_left(walk)) : 1;
    const std::int64_t count = std::min(left, inner.size - column);
    Positions from = walk.positions;
    for (std::size_t k = 0; k < from.size(); ++k) from[k] += column * inner.strides[k];
    tile(at, from, rows, count);
    at += rows * count;
    advance(walk, rows);
  }
}

}  // namespace braid
