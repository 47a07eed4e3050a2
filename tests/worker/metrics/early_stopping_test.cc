#include "worker/metrics/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/support/comma_locale.h"

namespace braid::worker {
namespace {

TEST(EarlyStoppingTest, StopsAfterSoManyEvaluationsWithoutImprovement) {
  EarlyStopping auc({.patience = 2});
  EXPECT_TRUE(auc.add(10, 0.7));
  EXPECT_FALSE(auc.add(20, 0.6));
  EXPECT_EQ(auc.reason(), "");
  EXPECT_TRUE(auc.add(30, 0.8));
  EXPECT_FALSE(auc.add(40, 0.8)) << "the same is no improvement";
  EXPECT_EQ(auc.reason(), "");
  EXPECT_FALSE(auc.add(50, 0.75));
  EXPECT_EQ(auc.reason(), "no improvement in 2 evaluations");
  EXPECT_EQ(auc.best()->step, 30U);

  EarlyStopping loss({.higher_is_better = false, .patience = 1});
  EXPECT_TRUE(loss.add(1, 0.5));
  EXPECT_TRUE(loss.add(2, 0.4));
  EXPECT_EQ(loss.reason(), "");
  EXPECT_FALSE(loss.add(3, 0.41));
  EXPECT_EQ(loss.reason(), "no improvement in 1 evaluation");
}

TEST(EarlyStoppingTest, SmallImprovementsAreTheBestAndNoReasonToGoOn) {
  EarlyStopping stopping({.patience = 2, .min_delta = 0.01});
  stopping.add(1, 0.5);
  EXPECT_TRUE(stopping.add(2, 0.505));
  EXPECT_TRUE(stopping.add(3, 0.509));
  EXPECT_EQ(stopping.reason(), "no improvement in 2 evaluations");
  EXPECT_EQ(stopping.best()->step, 3U);
  EarlyStopping slow({.higher_is_better = false, .patience = 2, .min_delta = 0.01});
  slow.add(1, 0.5);
  slow.add(2, 0.495);
  slow.add(3, 0.485);  // against the first, not against the one before
  EXPECT_EQ(slow.reason(), "");
}

TEST(EarlyStoppingTest, WhatIsNotDefinedIsNoImprovementAndNeverTheBest) {
  EarlyStopping stopping({.patience = 2});
  EXPECT_FALSE(stopping.add(1, std::nan("")));
  EXPECT_FALSE(stopping.best());
  EXPECT_TRUE(stopping.add(2, 0.1));
  EXPECT_FALSE(stopping.add(3, std::nan("")));
  EXPECT_EQ(stopping.reason(), "");
  EXPECT_FALSE(stopping.add(4, std::nan("")));
  EXPECT_NE(stopping.reason(), "");
}

TEST(EarlyStoppingTest, ATargetIsReachedFromItsSide) {
  EarlyStopping auc({.target = 0.8});
  auc.add(1, 0.79);
  EXPECT_EQ(auc.reason(), "");
  auc.add(2, 0.8);
  EXPECT_EQ(auc.reason(), "0.8 has reached the target of 0.8");
  EarlyStopping loss({.higher_is_better = false, .target = 0.3});
  loss.add(1, 0.31);
  EXPECT_EQ(loss.reason(), "");
  loss.add(2, 0.2);
  EXPECT_NE(loss.reason(), "");
}

TEST(EarlyStoppingTest, ResumesInALocaleOfDecimalCommas) {
  const EarlyStoppingOptions options{.patience = 3, .min_delta = 0.001};
  EarlyStopping before(options), after(options);
  before.add(4, 0.30000000000000004);
  before.add(5, -0.2);
  const CommaLocale locale;
  after.restore(before.state());
  EXPECT_EQ(after.state(), "waited=1 best=0x1.3333333333334p-2 at=4 reference=0x1.3333333333334p-2 at=4");
}

TEST(EarlyStoppingTest, AResumedRunDecidesAsAnUninterruptedOne) {
  const EarlyStoppingOptions options{.patience = 3, .min_delta = 0.001};
  const double values[] = {0.1, 0.30000000000000004, 0.3005, 0.2, 0.3009, 0.25};
  for (int cut = 0; cut <= 6; ++cut) {
    EarlyStopping whole(options), before(options), after(options);
    for (int i = 0; i < cut; ++i) before.add(static_cast<std::uint64_t>(i), values[i]);
    after.restore(before.state());
    for (int i = 0; i < 6; ++i) whole.add(static_cast<std::uint64_t>(i), values[i]);
    for (int i = cut; i < 6; ++i) after.add(static_cast<std::uint64_t>(i), values[i]);
    EXPECT_EQ(whole.state(), after.state()) << cut;
    EXPECT_EQ(whole.reason(), after.reason()) << cut;
  }
  for (const char* const damaged :
       {"best", "waited=", "waited=1 best=0x1p+0", "waited=1 best=x at=2 reference=0x1p+0 at=1"})
    EXPECT_THROW(EarlyStopping(options).restore(damaged), DataLoss) << damaged;
}

}  // namespace
}  // namespace braid::worker
