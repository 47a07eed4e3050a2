// Entries of the rows that indices of several tables name, grouped: what braid.GroupRows makes of indices,
// for those who update the rows by gradients that come later.
//
//   entry = (first row of the table + index) << 32 | (first entry of the table + position of the index)
//
// Rows are counted through the tables, with one more for each table behind its own: there a device, which
// cannot stop, puts indices out of range. Entries of a table lie where its indices would if those of all
// tables were joined, sorted. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

inline constexpr int kEntryPositionBits = 32;
/// Rows of all tables, with one more for each, and indices stay below it.
inline constexpr std::int64_t kEntryLimit = 1LL << 31;

/// Where a table begins.
struct EntryBase {
  std::int64_t row = 0, entry = 0;

  /// What the table's entries have more than those of a table alone.
  std::uint64_t key() const {
    return static_cast<std::uint64_t>(row) << kEntryPositionBits | static_cast<std::uint64_t>(entry);
  }
  /// To the next table.
  void pass(std::int64_t rows, std::int64_t indices) {
    row += rows + 1;
    entry += indices;
  }
};

/// Attributes of braid.SumRuns: the lengths of the lists that entries are of, and the list of each of the
/// values.
inline constexpr const char* kRunSizes = "sizes";
inline constexpr const char* kRunLists = "lists";
/// Where lists of these lengths begin, each with as many places as entries.
inline std::vector<EntryBase> bases_of(const std::vector<std::int64_t>& sizes) {
  std::vector<EntryBase> bases(1);
  for (const std::int64_t size : sizes) {
    bases.push_back(bases.back());
    bases.back().pass(size, size);
  }
  return bases;
}

/// A few passes over `indices` entries.
inline Cost grouping_cost(double indices) {
  constexpr double kPasses = 3, kEntryBytes = 8;
  return {0, indices * kEntryBytes * (2 + 3 * kPasses)};  // a pass reads twice and writes
}

}  // namespace braid
