// Rows made from a schema and a seed, for benchmarks and trials without data: numbers are standard normal,
// categories are skewed to small values, and labels follow a hidden linear model of both, so there is
// something to learn. Row r is a function of (seed, r) alone. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/input/schema/schema.h"

namespace braid {

struct GeneratorOptions {
  std::vector<ColumnSpec> columns = {};
  std::int64_t rows = 0;
  std::int64_t first_row = 0;  // other numbers are other rows of the same hidden model
  std::uint64_t seed = 0;
};

/// Throws: InvalidArgument (no rows, a schema that contradicts itself, a CLASS without vocabulary or buckets,
/// which say how many classes there are).
std::shared_ptr<const Table> generate_rows(const GeneratorOptions& options);

}  // namespace braid
