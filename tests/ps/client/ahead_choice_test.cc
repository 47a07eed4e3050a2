#include "ps/client/ahead_choice.h"

#include <gtest/gtest.h>

namespace braid::ps {
namespace {

/// How many of `pulls` pulls of 100 rows are ahead when `repaired` of their rows are repaired.
struct Pulls {
  AheadChoice choice;
  std::uint64_t rows = 0, repaired = 0;
  int ahead(int pulls, std::uint64_t repaired_of_each) {
    int count = 0;
    for (int i = 0; i < pulls; ++i) {
      if (!choice.next(rows, repaired)) continue;
      ++count;
      rows += 100;
      repaired += repaired_of_each;
    }
    return count;
  }
};

TEST(AheadChoiceTest, AllPullsAreAheadWhereRowsStayAsTheyWere) {
  EXPECT_EQ(Pulls().ahead(1000, 0), 1000);
  EXPECT_EQ(Pulls().ahead(1000, 75), 1000);
}

TEST(AheadChoiceTest, FewAreWhereNearlyAllAreRepaired) {
  constexpr int kTurn = AheadChoice::kLook + AheadChoice::kRest;
  EXPECT_EQ(Pulls().ahead(10 * kTurn, 76), 10 * AheadChoice::kLook);
  EXPECT_EQ(Pulls().ahead(10 * kTurn, 100), 10 * AheadChoice::kLook);
}

TEST(AheadChoiceTest, ItFollowsWhatChanges) {
  constexpr int kTurn = AheadChoice::kLook + AheadChoice::kRest;
  Pulls pulls;
  EXPECT_EQ(pulls.ahead(kTurn, 100), AheadChoice::kLook);
  EXPECT_EQ(pulls.ahead(1000, 10), 1000);
  EXPECT_EQ(pulls.ahead(AheadChoice::kLook + kTurn, 100), 2 * AheadChoice::kLook)
      << "of those of which nothing is known yet, and of the first that were in vain";
}

}  // namespace
}  // namespace braid::ps
