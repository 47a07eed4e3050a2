// The axes of a tensor that is reduced along some of them: neighbours that are reduced, or kept, together are
// joined, axes of size 1 are dropped. The innermost one stands apart: what happens to it decides which loop
// fits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/ir/shape.h"

namespace braid {

struct JoinedAxes {
  struct Axis {
    std::int64_t size, stride;
  };
  std::vector<Axis> kept, reduced;  // without the innermost one, outermost first
  std::int64_t inner = 1;           // size of the innermost axis, whose stride is 1
  bool inner_reduced = true;

  /// `axes`: those that are reduced, distinct.
  JoinedAxes(const Shape& shape, const std::vector<int>& axes) {
    bool first = true, last_reduced = false;
    std::int64_t stride = 1;
    std::vector<Axis> all;
    std::vector<bool> is_reduced;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (shape[d] == 1) continue;
      const bool reduces = std::find(axes.begin(), axes.end(), d) != axes.end();
      if (!first && reduces == last_reduced)
        all.back().size *= shape[d];
      else
        all.push_back({shape[d], stride}), is_reduced.push_back(reduces);
      stride *= shape[d];
      last_reduced = reduces;
      first = false;
    }
    if (!all.empty()) {
      inner = all[0].size;
      inner_reduced = is_reduced[0];
    }
    for (std::size_t a = all.size(); a-- > 1;) (is_reduced[a] ? reduced : kept).push_back(all[a]);
  }

  static std::int64_t product(const std::vector<Axis>& axes) {
    std::int64_t n = 1;
    for (const Axis& a : axes) n *= a.size;
    return n;
  }
};

/// Elements that flow into one result.
inline std::int64_t reduced_count(const Shape& shape, const std::vector<int>& axes) {
  std::int64_t n = 1;
  for (int axis : axes) n *= shape[axis];
  return n;
}

/// What Mean divides by: no elements make NaN of floats, 0 of integers.
template <class T>
T mean_divisor(std::int64_t count) {
  return std::is_integral_v<T> && count == 0 ? T(1) : static_cast<T>(count);
}

/// The axes of `from` along which an operand of shape `to` was repeated.
inline std::vector<int> repeated_axes(const Shape& from, const Shape& to) {
  std::vector<int> axes;
  const int missing = from.rank() - to.rank();
  for (int axis = 0; axis < from.rank(); ++axis)
    if (axis < missing || (to[axis - missing] == 1 && from[axis] != 1)) axes.push_back(axis);
  return axes;
}

}  // namespace braid
