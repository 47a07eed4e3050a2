// Transpositions of matrices, alone or in a batch.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/rule.h"

namespace braid {

/// Whether the node swaps the last two axes and moves no other.
inline bool swaps_last_axes(const Rewrite& r, const Node& node) {
  static const Pattern transpose{"Transpose"};
  if (!transpose.names(node) || !is_plain(r.plan, node)) return false;
  const Tensor* const known = r.graph.known_value(node.inputs[1]);
  if (!known || known->elements() < 2) return false;
  const std::vector<std::int64_t> axes = tensor_to_int64s(*known);
  std::vector<std::int64_t> swapped(axes.size());
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped.end()[-1], swapped.end()[-2]);
  return axes == swapped;
}

/// Transpositions come next to the products that they belong to (near_products.cc).
void move_transpositions(Plan& plan);

/// Transpositions of products become products of what is transposed.
void turn_products(Plan& plan);

}  // namespace braid
