// Lists of a table's rows by the rank that holds them: what braid.BucketIds makes of a batch's ids, and the
// ops that use it share. Thread rule: values and pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/ops/common/row_shuffle.h"

namespace braid {

/// How a table lies on the ranks.
enum class RowSplit {
  Hashed,  // each row on one rank (row_shuffle.h)
  Owned,   // all rows on one rank
  All,     // all rows on every rank, or a part of each row
};

struct RowBuckets {
  std::int64_t rows = 0;   // of the whole table
  std::int64_t ranks = 1;  // blocks of a list
  RowSplit split = RowSplit::Hashed;
  std::int64_t owner = 0;  // where Owned

  /// Rows of the table that a rank holds, at most.
  std::int64_t held() const { return split == RowSplit::Hashed ? (rows + ranks - 1) / ranks : rows; }
  /// Room for each rank's part of a list of `ids` ids, however they are spread: no more than there are ids,
  /// and no more than the rank has rows.
  std::int64_t capacity(std::int64_t ids) const { return std::min(ids, held()); }
};

/// The attribute "split" of braid.BucketIds.
inline constexpr const char *kHashed = "hashed", *kOwned = "owned", *kAll = "all";

inline RowSplit row_split(const std::string& name) {
  return name == kOwned ? RowSplit::Owned : name == kAll ? RowSplit::All : RowSplit::Hashed;
}

}  // namespace braid
