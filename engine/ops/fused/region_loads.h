// What a tile of a region on the CPU reads of its inputs: elements by axes, and rows by their numbers. Thread
// rule: pure functions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "engine/fusion/region.h"

namespace braid {

/// Elements [begin, begin + n) of what the axes make of x.
template <class U>
void load_axes(const U* x, const fusion::Axes& axes, std::int64_t begin, std::int64_t n, U* y) {
  const fusion::Axis inner = axes.back();
  std::int64_t column = begin % inner.size;
  for (std::int64_t outer = begin / inner.size; n > 0; ++outer, column = 0) {
    std::int64_t offset = column * inner.stride;
    for (std::size_t a = axes.size() - 1, rest = static_cast<std::size_t>(outer); a-- > 0;) {
      const auto size = static_cast<std::size_t>(axes[a].size);
      offset += static_cast<std::int64_t>(rest % size) * axes[a].stride;
      rest /= size;
    }
    const std::int64_t count = std::min(n, inner.size - column);
    if (inner.stride == 0)
      std::fill(y, y + count, x[offset]);
    else if (inner.stride == 1)
      std::copy(x + offset, x + offset + count, y);
    else
      for (std::int64_t i = 0; i < count; ++i) y[i] = x[offset + i * inner.stride];
    y += count;
    n -= count;
  }
}

/// `columns` columns from `column` on of the rows of x whose numbers are by[row], ... by[row + rows - 1].
template <class U, class I>
void pick_rows(const U* x, const I* by, std::int64_t of, std::int64_t width, std::int64_t row,
               std::int64_t rows, std::int64_t column, std::int64_t columns, U* y) {
  for (std::int64_t r = row; r < row + rows; ++r, y += columns) {
    const auto picked = static_cast<std::int64_t>(by[r]);
    if (picked < 0 || picked >= of)
      throw InvalidArgument(
          fmt::format("a region picks rows: indices[{}] = {} is not in [0, {})", r, picked, of));
    std::copy_n(x + picked * width + column, columns, y);
  }
}

}  // namespace braid
