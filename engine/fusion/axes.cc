#include "engine/fusion/region.h"

namespace braid::fusion {

Axes joined(const Axes& axes) {
  Axes result;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    if (!result.empty() && result.back().stride == axis.stride * axis.size)
      result.back() = {result.back().size * axis.size, axis.stride};
    else
      result.push_back(axis);
  }
  return result;
}

Axes broadcast_axes(const Shape& from, const Shape& to) {
  Axes axes(static_cast<std::size_t>(to.rank()));
  std::int64_t stride = 1;
  for (int axis = to.rank() - 1, own = from.rank() - 1; axis >= 0; --axis, --own) {
    const std::int64_t size = own < 0 ? 1 : from[own];
    axes[static_cast<std::size_t>(axis)] = {to[axis], size == 1 ? 0 : stride};
    stride *= size;
  }
  return joined(axes);
}

Axes contiguous_axes(std::int64_t count) { return count == 1 ? Axes{} : Axes{{count, 1}}; }

}  // namespace braid::fusion
