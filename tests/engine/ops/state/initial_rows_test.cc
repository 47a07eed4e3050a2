// First values of rows of a table: those of the whole table, for each part that memory may hold of it.
#include <gtest/gtest.h>

#include "tests/engine/ops/state/initial_parts.h"

namespace braid::testing {
namespace {

TEST(InitialRowsTest, AreThoseOfTheWholeTable) {
  for (const InitialRows& part : initial_parts()) {
    SCOPED_TRACE(text_of(part));
    const std::vector<float> expected = expected_of(part);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<float> made(expected.size(), 7);
      fill_initial_rows(part, made, pool);
      EXPECT_EQ(made, expected);
    }
  }
}

TEST(InitialRowsTest, RowsOfAllRanksAreTheTable) {
  constexpr std::int64_t kRows = 1001, kRanks = 3;
  std::vector<int> seen(kRows);
  for (int rank = 0; rank < kRanks; ++rank) {
    const InitialRows part{.rows = (kRows - rank + kRanks - 1) / kRanks,
                           .width = 1,
                           .dim = 1,
                           .is_spread = true,
                           .rank = rank,
                           .ranks = kRanks,
                           .shuffle = RowShuffle(kRows)};
    for (std::int64_t r = 0; r < part.rows; ++r) ++seen[static_cast<std::size_t>(part.row_of(r))];
  }
  EXPECT_EQ(seen, std::vector<int>(kRows, 1));
}

}  // namespace
}  // namespace braid::testing
