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
  using Positions = std::array<std::int64_t, kMaxOperands>;

  /// REQUIRES: static shapes; the operands broadcast to `out`.
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
  Positions positions_of(std::int64_t outer) const;

  std::vector<Axis> axes_;  // outermost first; at least one
  std::int64_t elements_ = 0;
};

template <class Run>
void BroadcastPlan::for_runs(std::int64_t begin, std::int64_t end, Run run) const {
  const std::int64_t inner = axes_.back().size;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t column = at % inner;
    const std::int64_t count = std::min(end - at, inner - column);
    Positions positions = positions_of(at / inner);
    for (std::size_t k = 0; k < positions.size(); ++k) positions[k] += column * axes_.back().strides[k];
    run(at, positions, count);
    at += count;
  }
}

}  // namespace braid
