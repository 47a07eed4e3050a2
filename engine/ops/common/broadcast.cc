#include "engine/ops/common/broadcast.h"

#include "base/error.h"

namespace braid {

BroadcastPlan::BroadcastPlan(std::initializer_list<const Shape*> operands, const Shape& out) {
  elements_ = out.elements();
  Positions element_strides{};  // of each operand, as the walk goes from the last axis to the first
  element_strides.fill(1);
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    const std::int64_t size = out[axis];
    if (size == 1) continue;
    Axis next{size, {}};
    bool joins = !axes_.empty();
    std::size_t k = 0;
    for (const Shape* operand : operands) {
      const int own = axis - (out.rank() - operand->rank());
      const bool present = own >= 0 && (*operand)[own] != 1;
      next.strides[k] = present ? element_strides[k] : 0;
      if (present) element_strides[k] *= size;
      if (joins && next.strides[k] != axes_.back().strides[k] * axes_.back().size) joins = false;
      ++k;
    }
    if (joins)
      axes_.back().size *= size;
    else
      axes_.push_back(next);
  }
  if (axes_.size() > kMaxAxes)
    throw InvalidArgument("cannot broadcast to " + out.to_string() + ": too many axes");
  if (axes_.empty()) axes_.push_back({1, {1, 1, 1}});
  std::reverse(axes_.begin(), axes_.end());
}

BroadcastPlan::Walk BroadcastPlan::walk_from(std::int64_t outer) const {
  Walk walk{};
  for (std::size_t a = axes_.size() - 1; a-- > 0; outer /= axes_[a].size) {
    walk.index[a] = outer % axes_[a].size;
    for (std::size_t k = 0; k < walk.positions.size(); ++k)
      walk.positions[k] += walk.index[a] * axes_[a].strides[k];
  }
  return walk;
}

void BroadcastPlan::advance(Walk& walk, std::int64_t rows) const {
  for (std::size_t a = axes_.size() - 1; a-- > 0; rows = 1) {
    const Axis& axis = axes_[a];
    walk.index[a] += rows;
    for (std::size_t k = 0; k < walk.positions.size(); ++k) walk.positions[k] += rows * axis.strides[k];
    if (walk.index[a] < axis.size) return;
    walk.index[a] = 0;
    for (std::size_t k = 0; k < walk.positions.size(); ++k) walk.positions[k] -= axis.size * axis.strides[k];
  }
}

}  // namespace braid
