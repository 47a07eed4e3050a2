// How the elements of up to three operands meet in a broadcast output (NumPy and TensorFlow rules). Made in
// `prepare`: axes of size 1 are dropped and neighbouring axes on which every operand behaves alike are
// joined, so most shapes end up with one or two axes. `for_runs` then walks any range of output elements as
// runs along the innermost axis, on which each operand has stride 1 or 0.
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

  std::int64_t elements() const { return elements_; }
  /// 1 or 0: what operand k does along a run.
  std::int64_t inner_stride(int k) const { return axes_.back().strides[static_cast<std::size_t>(k)]; }

  /// Calls run(out_position, operand_positions, count) for the runs that cover output elements [begin, end).
  template <class Run>
  void for_runs(std::int64_t begin, std::int64_t end, Run run) const;

 private:
  struct Axis {
    std::int64_t size;
    Positions strides;
  };
  /// Where a walk over the outer axes is: an odometer, because a division a run costs more than a short run.
  struct Walk {
    std::array<std::int64_t, kMaxAxes> index;
    Positions positions;
  };
  Walk walk_from(std::int64_t outer) const;
  void advance(Walk& walk) const {
    for (std::size_t a = axes_.size() - 1; a-- > 0;) {
      const Axis& axis = axes_[a];
      for (std::size_t k = 0; k < axis.strides.size(); ++k) walk.positions[k] += axis.strides[k];
      if (++walk.index[a] < axis.size) return;
      walk.index[a] = 0;
      for (std::size_t k = 0; k < axis.strides.size(); ++k) walk.positions[k] -= axis.size * axis.strides[k];
    }
  }

  std::vector<Axis> axes_;  // outermost first; at least one
  std::int64_t elements_ = 0;
};

template <class Run>
void BroadcastPlan::for_runs(std::int64_t begin, std::int64_t end, Run run) const {
  const Axis& inner = axes_.back();
  Walk walk = walk_from(begin / inner.size);
  std::int64_t column = begin % inner.size;
  for (std::int64_t at = begin; at < end; column = 0) {
    const std::int64_t count = std::min(end - at, inner.size - column);
    Positions positions = walk.positions;
    for (std::size_t k = 0; k < positions.size(); ++k) positions[k] += column * inner.strides[k];
    run(at, positions, count);
    at += count;
    advance(walk);
  }
}

}  // namespace braid
