#include "ps/client/cache_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::ps {
namespace {

/// How many of `steps` steps use the cache when they take so many seconds with it and without.
struct Steps {
  CacheChoice choice;
  double seconds = 0;
  int used(int steps, double with, double without) {
    int count = 0;
    for (int i = 0; i < steps; ++i) {
      const bool use = choice.next(seconds);
      count += use ? 1 : 0;
      seconds = use ? with : without;
    }
    return count;
  }
};

constexpr int kFirst =
    CacheChoice::kFirstFill + 2 * CacheChoice::kLook + CacheChoice::kSettle;  // steps of the first look

TEST(CacheChoiceTest, TheCacheIsUsedWhereItSavesTime) {
  Steps steps;
  EXPECT_EQ(steps.used(CacheChoice::kFirstFill, 1, 2), CacheChoice::kFirstFill);
  EXPECT_GT(steps.used(100000, 1, 2), 99000) << "few are made to look";
  EXPECT_EQ(steps.choice.with_seconds(), 1);
  EXPECT_EQ(steps.choice.without_seconds(), 2);
}

TEST(CacheChoiceTest, ItIsNotUsedWhereItCostsTime) {
  Steps steps;
  EXPECT_LT(steps.used(kFirst + 1000, 2, 1), kFirst);
  EXPECT_LT(steps.used(100000, 2, 1), 2500) << "each look fills it";
}

TEST(CacheChoiceTest, StepsThatTakeAsLongAreMadeWithIt) {
  EXPECT_GT(Steps().used(10000, 1, 1), 9700);
  EXPECT_GT(Steps().used(10000, 1, 0.99), 9700) << "a hundredth is noise";
}

TEST(CacheChoiceTest, AnotherLookFindsWhatHasChanged) {
  Steps steps;
  steps.used(2000, 2, 1);
  EXPECT_GT(steps.used(20000, 1, 2), 14000);
  EXPECT_LT(steps.used(20000, 2, 1), 6000);
}

/// A worker for whom it pays and one for whom it does not: the steps in which a look turns it off to measure.
TEST(CacheChoiceTest, WorkersLookInTheSameStepsWhateverTheyFind) {
  const auto turned_off = [](double with, double without) {
    Steps steps;
    std::vector<int> at;
    bool before = false;
    for (int step = 0; step < 20000; ++step) {
      const bool use = steps.used(1, with, without) == 1;
      if (before && !use) at.push_back(step);
      before = use;
    }
    return at;
  };
  EXPECT_EQ(turned_off(1, 2), turned_off(2, 1));
  EXPECT_GT(turned_off(1, 2).size(), 5U);
}

TEST(CacheChoiceTest, AFewLongStepsChangeNothing) {
  Steps steps;
  int used = 0;
  for (int i = 0; i < 1000; ++i) {
    used += steps.used(9, 1, 2);
    steps.seconds = 100;
  }
  EXPECT_GT(used, 8700);
}

}  // namespace
}  // namespace braid::ps
