// How the operands of braid.ReluBiasGrad and its relatives lie in memory, for both kernels.
#pragma once

#include <cstdint>

#include "engine/ops/op.h"

namespace braid {

/// Whether the lanes of y are side by side.
bool reads_joined_lanes(const Node& node);

/// `lanes` problems of m rows and n columns, in elements. dz, db, w and dw are dense; dy and y have strides.
struct ReluBiasGradForm {
  explicit ReluBiasGradForm(const PrepareContext& c);

  bool head = false;  // inputs g, w, y instead of dy, y
  std::int64_t lanes = 1, m = 0, n = 0;
  std::int64_t lane_stride = 0, row_stride = 0;
  std::int64_t g_stride = 0;  // from a lane's g to the next one's; 0: they share it
};

}  // namespace braid
