// A tensor as the slices that a gather along one axis addresses.
#pragma once

#include "engine/ir/op.h"

namespace braid {

/// params seen as [outer, rows, width].
struct GatherSlices {
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t width = 1;

  GatherSlices(const Shape& params, int axis) : rows(params[axis]) {
    for (int i = 0; i < axis; ++i) outer *= params[i];
    for (int i = axis + 1; i < params.rank(); ++i) width *= params[i];
  }
};

/// Whether a negative index stands for a row of zeros.
inline bool gives_zeros(const OpDef& op) {
  return op.name == "braid.GatherOrZero" || op.name == "braid.ResourceGatherOrZero";
}

/// The axis of a node whose input `input` holds it; 0 for ops without one.
inline int prepared_gather_axis(const PrepareContext& c, int input, int rank) {
  if (static_cast<int>(c.inputs.size()) <= input) return 0;
  const std::int64_t axis = tensor_to_int64s(*c.values[static_cast<std::size_t>(input)])[0];
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace braid
