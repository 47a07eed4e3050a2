// Parts of tables in memory and the first values that they must have, element by element.
#pragma once

#include <string>
#include <vector>

#include "engine/ops/state/initial_rows.h"

namespace braid::testing {

inline std::vector<InitialRows> initial_parts() {
  const RngKey key = make_rng_key(5, "table");
  const InitSpec specs[] = {{InitKind::Zeros, 0, 0},          {InitKind::Constant, 0.3F, 0},
                            {InitKind::Uniform, -0.7F, 0.1F}, {InitKind::Uniform, 2, 2},
                            {InitKind::Normal, 0.5F, 2},      {InitKind::TruncatedNormal, -1, 0.01F}};
  std::vector<InitialRows> parts;
  for (const InitSpec& spec : specs) {
    for (const std::int64_t elements : {0, 1, 7, 4096, 600011})
      parts.push_back(InitialRows::whole(spec, key, elements));
    // Columns of a table, with blocks of random numbers cut and whole.
    parts.push_back({.spec = spec, .key = key, .rows = 1000, .width = 8, .dim = 24, .column = 16});
    parts.push_back({.spec = spec, .key = key, .rows = 100, .width = 5, .dim = 15, .column = 5});
    // Spread rows, of which a thread makes many, and rows that a thread makes one of.
    for (const std::int64_t dim : {1, 3, 16, 128})
      parts.push_back({.spec = spec,
                       .key = key,
                       .rows = 5000,
                       .width = dim,
                       .dim = dim,
                       .is_spread = true,
                       .rank = 1,
                       .ranks = 2,
                       .shuffle = RowShuffle(10001)});
    parts.push_back({.spec = spec,
                     .key = key,
                     .rows = 3,
                     .width = 300001,
                     .dim = 300001,
                     .is_spread = true,
                     .rank = 0,
                     .ranks = 3,
                     .shuffle = RowShuffle(9)});
  }
  return parts;
}

inline std::string text_of(const InitialRows& part) {
  return "kind " + std::to_string(static_cast<int>(part.spec.kind)) + ", " + std::to_string(part.rows) +
         " rows of " + std::to_string(part.width) + (part.is_spread ? ", spread" : "");
}

inline std::vector<float> expected_of(const InitialRows& part) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < part.rows; ++r) {
    const std::int64_t row = part.is_spread ? part.shuffle.row_at(part.rank + r * part.ranks) : r;
    std::vector<float> own(static_cast<std::size_t>(part.width));
    fill_initial(part.spec, part.key, static_cast<std::uint64_t>(row * part.dim + part.column), own);
    values.insert(values.end(), own.begin(), own.end());
  }
  return values;
}

}  // namespace braid::testing
