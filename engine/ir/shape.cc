#include "engine/ir/shape.h"

#include <algorithm>

#include "base/error.h"

namespace braid {

Shape Shape::unknown_rank() {
  Shape shape;
  shape.has_rank_ = false;
  return shape;
}

bool Shape::is_static() const {
  return has_rank_ && std::all_of(dims_.begin(), dims_.end(), [](std::int64_t dim) { return dim >= 0; });
}

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  bool overflow = false;
  for (const std::int64_t dim : dims_) {
    if (dim == 0) return 0;
    overflow |= __builtin_mul_overflow(count, dim, &count);
  }
  if (overflow) throw InvalidArgument("shape " + to_string() + " has more elements than 2^63 - 1");
  return count;
}

std::string Shape::to_string() const {
  if (!has_rank_) return "<unknown>";
  std::string text = "[";
  for (const std::int64_t dim : dims_) {
    if (text.size() > 1) text += ", ";
    text += dim < 0 ? "?" : std::to_string(dim);
  }
  return text + "]";
}

bool merge_shapes(const Shape& a, const Shape& b, Shape& merged) {
  if (!a.has_rank() || !b.has_rank()) {
    merged = a.has_rank() ? a : b;
    return true;
  }
  if (a.rank() != b.rank()) return false;
  Shape result = a;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (b[axis] < 0) continue;
    if (a[axis] >= 0 && a[axis] != b[axis]) return false;
    result.set_dim(axis, b[axis]);
  }
  merged = std::move(result);
  return true;
}

namespace {

// An unknown dimension beside a known one other than 1 must be that one or 1, so the result is the known one.
bool broadcast_dim(std::int64_t a, std::int64_t b, std::int64_t& result) {
  if (a == b || b == 1) {
    result = a;
  } else if (a == 1 || a < 0) {
    result = b;
  } else if (b < 0) {
    result = a;
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool broadcast_shapes(const Shape& a, const Shape& b, Shape& result) {
  if (!a.has_rank() || !b.has_rank()) {
    result = Shape::unknown_rank();
    return true;
  }
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank));
  for (int axis = 0; axis < rank; ++axis) {
    const int axis_a = axis - (rank - a.rank());
    const int axis_b = axis - (rank - b.rank());
    const std::int64_t dim_a = axis_a < 0 ? 1 : a[axis_a];
    const std::int64_t dim_b = axis_b < 0 ? 1 : b[axis_b];
    if (!broadcast_dim(dim_a, dim_b, dims[static_cast<std::size_t>(axis)])) return false;
  }
  result = Shape(std::move(dims));
  return true;
}

}  // namespace braid
