// The rules by which AUTO sizes a stage, against made-up measurements.
#include "engine/staging/stage_tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

const StageTuner::Limits kLimits{.max_capacity = 32, .max_threads = 4};

TEST(StageTunerTest, TakesAsManyThreadsAsABatchTakesSteps) {
  StageTuner tuner({1, 1}, true, true, kLimits);
  EXPECT_EQ(tuner.update({.make_seconds = 0.025, .step_seconds = 0.010}), (StageSizes{3, 3}));
  EXPECT_EQ(
      StageTuner({1, 1}, true, true, kLimits).update({.make_seconds = 1, .step_seconds = 0.001}).threads, 4)
      << "no more than there may be";
  EXPECT_EQ(
      StageTuner({1, 1}, true, true, kLimits).update({.make_seconds = 0.0101, .step_seconds = 0.010}).threads,
      1)
      << "a per cent is noise";
}

TEST(StageTunerTest, TakesRoomForAsManyBatchesAsFitIntoAStep) {
  EXPECT_EQ(StageTuner({1, 1}, true, true, kLimits).update({.make_seconds = 0.003, .step_seconds = 0.010}),
            (StageSizes{4, 1}));
  EXPECT_EQ(
      StageTuner({1, 1}, true, true, kLimits).update({.make_seconds = 1e-6, .step_seconds = 0.010}).capacity,
      8)
      << "room that nobody needs is memory";
}

TEST(StageTunerTest, GivesRoomWhenThreadsHaveTimeLeftAndThreadsWhenNot) {
  StageTuner bursty({2, 2}, true, true, kLimits);
  bursty.update({.make_seconds = 0.015, .step_seconds = 0.010});
  EXPECT_EQ(bursty.update({0.015, 0.010, 0.002, 0.4}), (StageSizes{4, 2}));

  StageTuner late({2, 2}, true, true, kLimits);
  late.update({.make_seconds = 0.015, .step_seconds = 0.010});
  EXPECT_EQ(late.update({0.019, 0.010, 0.002, 0.0}), (StageSizes{3, 3}));
}

TEST(StageTunerTest, TakesBackAThreadThatBroughtNothingAndIsDone) {
  StageTuner tuner({1, 1}, true, true, kLimits);
  tuner.update({.make_seconds = 0.010, .step_seconds = 0.010});
  EXPECT_EQ(tuner.update({0.012, 0.010, 0.004, 0}).threads, 2);
  EXPECT_EQ(tuner.update({0.024, 0.010, 0.004, 0}).threads, 1);
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.update({0.024, 0.010, 0.004, 0}).threads, 1);
}

TEST(StageTunerTest, OfManyThreadsAThirdIsAddedAtATimeAndTakenBack) {
  const StageTuner::Limits many{.max_capacity = 64, .max_threads = 16};
  StageTuner tuner({1, 1}, true, true, many);
  EXPECT_EQ(tuner.update({.make_seconds = 0.9e-3, .step_seconds = 0.1e-3}).threads, 9);
  EXPECT_EQ(tuner.update({1.2e-3, 0.1e-3, 0.021e-3, 0}).threads, 11) << "as many as the wait is of a step";
  EXPECT_EQ(tuner.update({1.6e-3, 0.1e-3, 0.1e-3, 0}).threads, 9) << "all that came last";

  StageTuner starved({1, 1}, true, true, many);
  starved.update({.make_seconds = 0.9e-3, .step_seconds = 0.1e-3});
  EXPECT_EQ(starved.update({1.8e-3, 0.1e-3, 0.1e-3, 0}).threads, 12) << "a third at most";
  EXPECT_EQ(starved.update({1.8e-3, 0.1e-3, 0.05e-3, 0}).threads, 16) << "no more than there may be";
}

TEST(StageTunerTest, LeavesAloneWhatServesAndWhatIsNotAuto) {
  StageTuner served({1, 1}, true, true, kLimits);
  const StageSizes by_rule = served.update({.make_seconds = 0.005, .step_seconds = 0.010});
  for (int i = 1; i < StageTuner::kWindows; ++i) {
    EXPECT_FALSE(served.settled());
    EXPECT_EQ(served.update({0.005, 0.010, 0.0001, 0.5}), by_rule);
  }
  EXPECT_TRUE(served.settled());
  EXPECT_LE(StageTuner::kSkippedTakes + StageTuner::kWindows * StageTuner::kWindowTakes, 50);

  StageTuner quick({1, 1}, true, true, kLimits);
  quick.update({.make_seconds = 1e-6, .step_seconds = 5e-6});
  EXPECT_EQ(quick.update({1e-6, 5e-6, 4e-6, 0.5}), quick.sizes()) << "a wake-up is not starvation";
  EXPECT_EQ(quick.sizes().capacity, 5);
  quick.update({0, 5e-6, 0, 0.5});
  EXPECT_THAT(quick.report(), ::testing::HasSubstr("making a batch takes 0.001 ms")) << "none was made";

  StageTuner fixed({3, 1}, false, true, kLimits);
  EXPECT_EQ(fixed.update({.make_seconds = 0.025, .step_seconds = 0.010}), (StageSizes{3, 3}));
  StageTuner only_room({1, 2}, true, false, kLimits);
  EXPECT_EQ(only_room.update({.make_seconds = 0.1, .step_seconds = 0.010}), (StageSizes{2, 2}));
  EXPECT_THAT(only_room.report(), ::testing::HasSubstr("capacity 2, 2 threads: making a batch takes 100 ms"));
}

StageTuner settled(StageSizes sizes) {
  StageTuner tuner(sizes, true, true, kLimits);
  const double make = sizes.threads * 100e-6;
  while (!tuner.settled()) tuner.update({.make_seconds = make, .step_seconds = 100e-6});
  return tuner;
}

TEST(StageTunerTest, LooksAgainUntilTakersAreServed) {
  StageTuner tuner = settled({1, 1});
  EXPECT_FALSE(tuner.done());
  EXPECT_EQ(tuner.look_again({190e-6, 20e-6, 120e-6, 0}), (StageSizes{2, 2}));
  EXPECT_EQ(tuner.look_again({190e-6, 50e-6, 60e-6, 0}), (StageSizes{3, 3}));
  EXPECT_EQ(tuner.look_again({190e-6, 70e-6, 15e-6, 0.4}), (StageSizes{6, 3}))
      << "less than waking a thread takes";
  for (int look = 0; look < StageTuner::kServedLooks; ++look) {
    EXPECT_FALSE(tuner.done());
    EXPECT_EQ(tuner.look_again({190e-6, 77e-6, 1e-6, 0.4}), (StageSizes{6, 3}));
  }
  EXPECT_TRUE(tuner.done());
  EXPECT_EQ(tuner.look_again({190e-6, 20e-6, 120e-6, 0}), (StageSizes{6, 3}));
}

TEST(StageTunerTest, LooksGetLongerWhileTakersAreServed) {
  StageTuner tuner = settled({1, 1});
  const StageWindow served{90e-6, 100e-6, 0, 0.1}, starved{190e-6, 20e-6, 120e-6, 0};
  EXPECT_EQ(tuner.look(), StageTuner::kLook);
  for (int look = 1; look <= 5; ++look) {
    tuner.look_again(served);
    EXPECT_EQ(tuner.look(), StageTuner::kLook * (1 << look));
  }
  EXPECT_EQ(tuner.look_again(starved), (StageSizes{2, 2})) << "what was read ahead is used up";
  EXPECT_EQ(tuner.look(), StageTuner::kLook);
  for (int look = 0; look < StageTuner::kServedLooks; ++look) tuner.look_again(served);
  EXPECT_TRUE(tuner.done());
}

TEST(StageTunerTest, LookingAgainGivesBackWhatBroughtNothing) {
  StageTuner tuner = settled({1, 1});
  EXPECT_EQ(tuner.look_again({400e-6, 100e-6, 50e-6, 0}), (StageSizes{2, 2}));
  EXPECT_EQ(tuner.look_again({800e-6, 100e-6, 49e-6, 0}), (StageSizes{1, 1}));
  EXPECT_TRUE(tuner.done());

  StageTuner full = settled({4, 4});
  EXPECT_EQ(full.look_again({400e-6, 100e-6, 50e-6, 0}), (StageSizes{4, 4})) << "there may be no more";
  EXPECT_TRUE(full.done());
}

}  // namespace
}  // namespace braid
