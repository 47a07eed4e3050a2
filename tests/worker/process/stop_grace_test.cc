#include "worker/process/stop_grace.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "launch/local_launcher.h"
#include "tests/support/eventually.h"
#include "tests/support/in_some_attempt.h"

namespace braid::worker {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class StopGraceTest : public ::testing::Test {
 protected:
  StopGraceTest() { set_log_level(LogLevel::Error); }
  StopFlag flag_;
};

TEST_F(StopGraceTest, WaitsEndAWhileAfterTheRequest) {
  StopGrace grace(flag_, 200ms);
  grace.resume();
  std::this_thread::sleep_for(400ms);
  EXPECT_FALSE(grace.over()) << "nobody has asked";
  const auto begin = Clock::now();
  flag_.request();
  EXPECT_TRUE(eventually([&] { return grace.over(); }));
  EXPECT_GE(Clock::now() - begin, 200ms);
  EXPECT_TRUE(grace.token().stop_requested());
}

TEST_F(StopGraceTest, ARequestBeforeItCounts) {
  flag_.request();
  StopGrace grace(flag_, 1ms);
  grace.resume();
  EXPECT_TRUE(eventually([&] { return grace.over(); }));
}

TEST_F(StopGraceTest, StepsThatEndGiveTheNextOneTime) {
  in_some_attempt([] {
    StopFlag flag;
    StopGrace grace(flag, 500ms);
    grace.resume();
    flag.request();
    const auto begin = Clock::now();
    while (Clock::now() < begin + 1s) {
      std::this_thread::sleep_for(10ms);
      grace.step_ended(0.01);
    }
    EXPECT_FALSE(grace.over());
  });
}

TEST_F(StopGraceTest, WhatIsDoneBetweenStepsDoesNotCount) {
  in_some_attempt([] {
    StopFlag flag;
    StopGrace grace(flag, 200ms);
    flag.request();
    std::this_thread::sleep_for(300ms);
    EXPECT_FALSE(grace.over()) << "before the first step";
    grace.resume();
    grace.pause();
    std::this_thread::sleep_for(300ms);
    EXPECT_FALSE(grace.over());
    const auto begin = Clock::now();
    grace.resume();
    EXPECT_TRUE(eventually([&] { return grace.over(); }));
    EXPECT_GE(Clock::now() - begin, 200ms);
  });
}

TEST_F(StopGraceTest, SlowStepsHaveThreeTimesTheirTime) {
  StopGrace grace(flag_, 1ms);
  grace.resume();
  for (const double seconds : {0.1, 0.3}) grace.step_ended(seconds);
  const auto begin = Clock::now();
  flag_.request();
  EXPECT_TRUE(eventually([&] { return grace.over(); }));
  EXPECT_GE(Clock::now() - begin, 600ms);
}

TEST_F(StopGraceTest, ItIsOverBeforeTheLauncherKills) {
  EXPECT_GE(launch::LocalLaunchOptions{}.grace, 2 * StopGrace::kGrace);
}

TEST_F(StopGraceTest, ItEndsWithTheRunWhileItWaits) {
  flag_.request();
  const auto begin = Clock::now();
  const StopFlag never;
  for (const StopFlag* flag : std::initializer_list<const StopFlag*>{&flag_, &never}) {
    { const StopGrace paused(*flag, 1h); }
    StopGrace grace(*flag, 1h);
    grace.resume();
  }
  EXPECT_LT(Clock::now() - begin, 30s);
}

}  // namespace
}  // namespace braid::worker
