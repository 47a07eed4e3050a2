#include "worker/stop_grace.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/base/eventually.h"

namespace braid::worker {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class StopGraceTest : public testing::Test {
 protected:
  StopGraceTest() { set_log_level(LogLevel::Error); }
  StopFlag flag_;
};

TEST_F(StopGraceTest, WaitsEndAWhileAfterTheRequest) {
  const StopGrace grace(flag_, 200ms);
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
  const StopGrace grace(flag_, 1ms);
  EXPECT_TRUE(eventually([&] { return grace.over(); }));
}

TEST_F(StopGraceTest, StepsThatEndGiveTheNextOneTime) {
  StopGrace grace(flag_, 1s);
  flag_.request();
  const auto begin = Clock::now();
  while (Clock::now() < begin + 1500ms) {
    std::this_thread::sleep_for(10ms);
    grace.step_ended(0.01);
  }
  EXPECT_FALSE(grace.over());
}

TEST_F(StopGraceTest, SlowStepsHaveThreeTimesTheirTime) {
  StopGrace grace(flag_, 1ms);
  for (const double seconds : {0.1, 0.3}) grace.step_ended(seconds);
  const auto begin = Clock::now();
  flag_.request();
  EXPECT_TRUE(eventually([&] { return grace.over(); }));
  EXPECT_GE(Clock::now() - begin, 600ms);
}

TEST_F(StopGraceTest, ItEndsWithTheRunWhileItWaits) {
  flag_.request();
  const auto begin = Clock::now();
  { const StopGrace grace(flag_, 1h); }
  const StopFlag never;
  { const StopGrace grace(never, 1h); }
  EXPECT_LT(Clock::now() - begin, 30s);
}

}  // namespace
}  // namespace braid::worker
