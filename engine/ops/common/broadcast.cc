#include "engine/ops/common/broadcast.h"

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
  if (axes_.empty()) axes_.push_back({1, {1, 1, 1}});
  std::reverse(axes_.begin(), axes_.end());
}

BroadcastPlan::Positions BroadcastPlan::positions_of(std::int64_t outer) const {
  Positions positions{};
  for (std::size_t a = axes_.size() - 1; a-- > 0;) {
    const std::int64_t index = outer % axes_[a].size;
    outer /= axes_[a].size;
    for (std::size_t k = 0; k < positions.size(); ++k) positions[k] += index * axes_[a].strides[k];
  }
  return positions;
}

}  // namespace braid
