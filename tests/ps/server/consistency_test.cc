// SSP and TIMED on a core without a network.
#include <gmock/gmock.h>

#include <thread>

#include "ps/server/clocks.h"
#include "ps/server/late_workers.h"
#include "tests/ps/server/core_fixture.h"

namespace braid::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kAll = [](int) { return true; };

TEST(StepClocksTest, TheSlowestThatIsWaitedForCounts) {
  StepClocks clocks(2, 3, 5);
  const auto table = static_cast<TableId>(1);
  EXPECT_EQ(clocks.slowest(table, kAll), 5U);
  clocks.pushed(table, 0, 5);
  clocks.pushed(table, 1, 7);
  EXPECT_EQ(clocks.slowest(table, kAll), 5U);
  EXPECT_THAT(clocks.behind(table, 7, kAll), ElementsAre(0, 2));
  EXPECT_EQ(clocks.slowest(table, [](int w) { return w != 2; }), 6U);
  EXPECT_EQ(clocks.slowest(table, [](int) { return false; }), 8U) << "nobody holds anybody up";
  EXPECT_EQ(clocks.slowest(kAll), 5U) << "of all tables";
}

TEST(LateWorkersTest, GradientsAreOfTheRoundWhoseValuesTheyWereMadeFrom) {
  LateWorkers late(2);
  late.served(1, 3, 3);
  EXPECT_EQ(late.round_of(1, 3), 3U);
  late.left_out(1, 3);
  EXPECT_FALSE(late.is_here(1));
  EXPECT_TRUE(late.is_closed(1, 3));
  late.served(1, 4, 9);
  EXPECT_TRUE(late.is_here(1));
  EXPECT_EQ(late.round_of(1, 4), 9U);
  EXPECT_FALSE(late.is_closed(1, 9));
  EXPECT_EQ(late.round_to_pull(1, 5), 10U) << "behind its own round";
  EXPECT_EQ(late.round_to_pull(0, 5), 5U);
}

class SspCoreTest : public CoreFixture {
 protected:
  void start(int workers, std::uint64_t staleness) {
    set_.staleness = staleness;
    start_core(workers, Consistency::Ssp);
    start_job();
  }
};

TEST_F(SspCoreTest, APullWaitsForTheSlowestAsFarAsTheStalenessSays) {
  start(2, 2);
  for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(push(push_job(0, step, 1)).error, nullptr);
  EXPECT_EQ(first_value(0, 2), -3) << "every push is an update";
  auto third = pull_async(0, 3);
  EXPECT_EQ(third.wait_for(milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(push(push_job(1, 0, 1)).error, nullptr);
  EXPECT_EQ(third.get().error, nullptr);
  EXPECT_THAT(core_->counters()->staleness(), ElementsAre(testing::Pair(2U, 2U)));
}

TEST_F(SspCoreTest, AParkedPullNamesWhoIsSlowAndGoesOnWithoutWhoLeft) {
  start(3, 1);
  for (std::uint64_t step = 0; step < 2; ++step)
    for (const int worker : {0, 1}) push(push_job(worker, step, 1));
  auto late = pull_async(0, 2, milliseconds(1));
  std::this_thread::sleep_for(milliseconds(5));
  core_->tick(Clock::now());
  EXPECT_THAT(late.get().error->message, testing::AllOf(HasSubstr("worker 2"), HasSubstr("step 2 of table")));
  auto parked = pull_async(0, 2);
  core_->leave(sender(2));
  EXPECT_EQ(parked.get().error, nullptr);
}

TEST_F(SspCoreTest, ARankThatIsLostIsNamedToThoseThatAreParked) {
  start(2, 1);
  for (std::uint64_t step = 0; step < 2; ++step) push(push_job(0, step, 1));
  auto parked = pull_async(0, 2);
  lose(1);
  core_->tick(Clock::now() + kHeartbeatTimeout + std::chrono::seconds(1));
  const PullAnswer answer = parked.get();
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(answer.error->message, HasSubstr("worker 1"));
}

TEST_F(SspCoreTest, ACutHasAllStepsBelowIt) {
  start(2, 3);
  push(push_job(0, 0, 1));
  push(push_job(0, 1, 1));
  EXPECT_THROW(core_->snapshot(sender(0), 1, WaitContext::with_timeout(milliseconds(20))), DeadlineExceeded);
  push(push_job(1, 0, 1));
  EXPECT_NE(core_->snapshot(sender(0), 1, WaitContext::with_timeout(std::chrono::seconds(20))), nullptr);
}

class TimedCoreTest : public CoreFixture {
 protected:
  void start(int workers, TimedRule rule) {
    set_.timed = rule;
    start_core(workers, Consistency::Timed);
    start_job();
  }
  /// All pull for the step, as their steps begin.
  void all_pull(std::uint64_t step, int workers) {
    for (int w = 0; w < workers; ++w) ASSERT_EQ(pull_async(w, step).get().error, nullptr);
  }
  void wait_and_tick(milliseconds time = milliseconds(30)) {
    std::this_thread::sleep_for(time);
    core_->tick(Clock::now());
  }
};

constexpr TimedRule kTwo{.timeout_ms = 10, .quorum = 2};

TEST_F(TimedCoreTest, ARoundClosesWithAQuorumWhenItsTimeIsOver) {
  start(3, kTwo);
  all_pull(0, 3);
  push(push_job(0, 0, 1));
  wait_and_tick();
  auto next = pull_async(0, 1);
  EXPECT_EQ(next.wait_for(milliseconds(20)), std::future_status::timeout) << "one is no quorum";
  push(push_job(1, 0, 4));
  wait_and_tick();
  EXPECT_EQ(next.get().error, nullptr);
  // grad_scale is 1: the sum of three as far as two say it.
  EXPECT_FLOAT_EQ(first_value(1, 1), -5 * 1.5F);
  const PushAnswer late = push(push_job(2, 0, 100));
  EXPECT_EQ(late.result, PushResult::Dropped);
  EXPECT_THAT(late.reason, HasSubstr("round 0 closed before"));
  EXPECT_FLOAT_EQ(first_value(0, 1), -7.5F);
  EXPECT_THAT(core_->counters()->late(), ElementsAre(testing::Pair(2, 1U)));
  EXPECT_EQ(count(Count::PushesDropped), 1U);
}

TEST_F(TimedCoreTest, NobodyWaitsForOneThatIsLateUntilItIsBackWithTheNextRound) {
  start(2, {.timeout_ms = 10, .quorum = 1});
  all_pull(0, 2);
  push(push_job(0, 0, 1));
  wait_and_tick();
  for (std::uint64_t step = 1; step < 4; ++step) {
    ASSERT_EQ(pull_async(0, step).get().error, nullptr);
    push(push_job(0, step, 1));  // closes at once
  }
  EXPECT_FLOAT_EQ(first_value(0, 4), -8) << "alone for both";
  EXPECT_EQ(push(push_job(1, 0, 100)).result, PushResult::Dropped);
  // Its step 1 begins with the round that comes next, and is of that.
  auto back = pull_async(1, 1);
  EXPECT_EQ(back.wait_for(milliseconds(20)), std::future_status::timeout);
  push(push_job(0, 4, 1));
  EXPECT_EQ(back.get().error, nullptr);
  ASSERT_EQ(pull_async(0, 5).get().error, nullptr);
  push(push_job(0, 5, 1));
  auto sixth = pull_async(0, 6);
  EXPECT_EQ(sixth.wait_for(milliseconds(5)), std::future_status::timeout) << "it is waited for";
  EXPECT_EQ(push(push_job(1, 1, 3)).result, PushResult::Applied);
  EXPECT_EQ(sixth.get().error, nullptr);
  EXPECT_FLOAT_EQ(first_value(0, 6), -10 - 4);
}

TEST_F(TimedCoreTest, WhatIsLateMayGoIntoTheOpenRound) {
  start(2, {.timeout_ms = 10, .quorum = 1, .late = TimedRule::Late::Next, .late_scale = 0.25F});
  all_pull(0, 2);
  push(push_job(0, 0, 1));
  wait_and_tick();
  EXPECT_FLOAT_EQ(first_value(0, 1), -2);
  EXPECT_EQ(push(push_job(1, 0, 8)).result, PushResult::Late);
  push(push_job(0, 1, 1));
  EXPECT_FLOAT_EQ(first_value(0, 2), -2 - 2 * (1 + 2)) << "a quarter of it, as one of those for two";
}

TEST_F(TimedCoreTest, WithoutAnEndARoundWaitsForAll) {
  start(2, {.timeout_ms = TimedRule::kNever, .quorum = 1});
  all_pull(0, 2);
  push(push_job(0, 0, 1));
  wait_and_tick();
  auto next = pull_async(0, 1);
  EXPECT_EQ(next.wait_for(milliseconds(20)), std::future_status::timeout);
  push(push_job(1, 0, 1));
  EXPECT_EQ(next.get().error, nullptr);
}

TEST_F(TimedCoreTest, BehindTheLastRoundWorkersHearThatItIsOver) {
  start(2, {.timeout_ms = 10, .quorum = 1, .rounds = 1});
  all_pull(0, 2);
  push(push_job(0, 0, 1));
  wait_and_tick();
  EXPECT_EQ(push(push_job(1, 0, 1)).result, PushResult::Dropped);
  EXPECT_TRUE(pull_async(0, 1).get().finish);
  core_->leave(sender(0));
  EXPECT_TRUE(pull_async(1, 1).get().finish);
  const PushAnswer more = push(push_job(1, 1, 1));
  EXPECT_EQ(more.result, PushResult::Dropped);
  EXPECT_THAT(more.reason, HasSubstr("all 1 rounds"));
}

TEST_F(TimedCoreTest, TooManyLatePushesEndTheJob) {
  start(2, {.timeout_ms = 0, .quorum = 1, .max_late_share = 0.5});
  std::uint64_t step = 0;
  PushAnswer answer;
  for (; step < 60 && !answer.error; ++step) {
    push(push_job(0, step, 1));
    answer = push(push_job(1, step, 1));
  }
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::Internal);
  EXPECT_THAT(answer.error->message, HasSubstr("pushes of worker 1 came after their rounds had closed"));
}

}  // namespace
}  // namespace braid::ps
