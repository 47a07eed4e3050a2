// The leading axes of batches of matrices, and the sizes of the matrices.
#pragma once

#include <vector>

#include "engine/ir/shape.h"

namespace braid {

/// The axes before the last two. REQUIRES: rank >= 2.
inline Shape batch_of(const Shape& shape) {
  const auto dims = shape.dims();
  return Shape(std::vector<std::int64_t>(dims.begin(), dims.end() - 2));
}

/// The size of an axis counted from the end, 1 or 2.
inline std::int64_t size_at(const Shape& shape, int from_end) {
  return shape.has_rank() ? shape[shape.rank() - from_end] : Shape::kUnknown;
}

}  // namespace braid
