// The product of braid.ProductUpdate, for its rules and both kernels.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ir/op.h"

namespace braid {

/// variable [m, n] += scale[0] op(a) [m, k] op(b) [k, n], or [lanes, ...] of each; an operand without lanes
/// is shared by all.
struct UpdateProduct {
  static constexpr int kHandle = 0, kScale = 1, kA = 2, kB = 3;

  UpdateProduct(const Node& node, const Shape& variable, const Shape& a, const Shape& b);

  bool transpose_a = false, transpose_b = false;
  std::int64_t lanes = 1, m = 0, n = 0, k = 0;
  bool own_a = false, own_b = false;  // each lane has its own
  std::int64_t elements() const { return lanes * m * n; }
};

}  // namespace braid
