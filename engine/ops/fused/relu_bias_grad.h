// How the operands of braid.ReluBiasGrad and its relatives lie in memory, for both kernels.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"

namespace braid {

/// Whether the lanes of y are side by side.
bool reads_joined_lanes(const Node& node);

/// Which way dz lies: its rows side by side, its columns (dz^T), or one output of each.
enum class GradLayout { Rows, Columns, Both };
GradLayout grad_layout(const Node& node);
/// Makes the node one of another layout, its outputs' shapes too. REQUIRES: its layout is Rows, its shapes
/// are known.
void set_grad_layout(Node& node, GradLayout layout);

/// `lanes` problems of m rows and n columns, in elements. dz, db, w and dw are dense; dy and y have strides.
struct ReluBiasGradForm {
  explicit ReluBiasGradForm(const PrepareContext& c);

  bool head = false;  // inputs g, w, y instead of dy, y
  /// Outputs with dz's rows and columns; -1: there is none.
  int rows_output = 0, columns_output = -1;
  std::int64_t lanes = 1, m = 0, n = 0;
  std::int64_t lane_stride = 0, row_stride = 0;
  std::int64_t g_stride = 0;  // from a lane's g to the next one's; 0: they share it
};

}  // namespace braid
