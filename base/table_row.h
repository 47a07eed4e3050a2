// A row of a table with its slots behind it, as servers and their clients keep rows: its values [dim], then a
// run of each slot of its optimizer, as long as the row, or one number where the optimizer is row-wise.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/optim.h"

namespace braid {

/// Numbers that a slot has for a row of `dim` values.
inline std::int64_t slot_width(const OptimizerSpec& spec, std::int64_t dim) {
  return spec.row_wise ? 1 : dim;
}

/// Numbers of a row and its slots.
inline std::int64_t table_row_width(const OptimizerSpec& spec, std::int64_t dim) {
  return dim + static_cast<std::int64_t>(optimizer_slots(spec).size()) * slot_width(spec, dim);
}

/// Updates such a row by its gradient [dim]. REQUIRES: `row` has table_row_width() numbers of that optimizer.
inline void update_table_row(const PreparedUpdate& update, float* row, std::span<const float> gradient) {
  const std::size_t dim = gradient.size();
  if (update.row_wise) return apply_row_update(update, {row, dim}, gradient, row[dim]);
  std::array<float*, 4> slots{};
  for (std::size_t k = 0; k < update.slots; ++k) slots[k] = row + (k + 1) * dim;
  apply_update(update, {row, dim}, gradient, {slots.data(), update.slots});
}

}  // namespace braid
