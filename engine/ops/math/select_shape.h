// Select's condition as a shape that broadcasts.
#pragma once

#include <vector>

#include "engine/ir/shape.h"

namespace braid {

/// A vector that chooses rows becomes [n, 1, ...].
inline Shape row_condition(const Shape& condition, const Shape& out) {
  if (condition.rank() != 1 || out.rank() <= 1) return condition;
  std::vector<std::int64_t> dims(static_cast<std::size_t>(out.rank()), 1);
  dims[0] = condition[0];
  return Shape(std::move(dims));
}

}  // namespace braid
