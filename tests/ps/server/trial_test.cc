// Pulls and pushes on trial, without a network: they wait for nobody else and leave no trace.
#include <gmock/gmock.h>

#include "tests/ps/server/core_fixture.h"

namespace braid::ps {
namespace {

using testing::HasSubstr;

class TrialTest : public CoreFixture {
 protected:
  std::future<PullAnswer> try_pull(int worker, std::uint64_t version,
                                   Clock::time_point deadline = Clock::time_point::max()) {
    static const std::vector<std::int64_t> kKeys{1, 2};
    auto answer = std::make_shared<std::promise<PullAnswer>>();
    PullJob job;
    job.sender = sender(worker);
    job.min_version = version;
    job.deadline = deadline;
    job.dense = {0};
    job.sparse = {{0, 2, kKeys, nullptr}};
    job.trial = true;
    job.done = [answer](PullAnswer a) { answer->set_value(std::move(a)); };
    core_->pull(std::move(job));
    return answer->get_future();
  }
  PushAnswer try_push(int worker, std::uint64_t step) {
    PushJob job = push_job(worker, step, 1.0F);
    job.votes_to_stop = true;
    job.trial = true;
    return push(std::move(job));
  }
  static bool waits(std::future<PullAnswer>& answer) {
    return answer.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout;
  }
};

TEST_F(TrialTest, NeedsNoValuesAndNoOtherWorker) {
  start_core(2, Consistency::Bsp);
  const PullAnswer first = try_pull(0, 0).get();
  ASSERT_EQ(first.error, nullptr);
  EXPECT_EQ(first.pieces.size(), 2U);
  EXPECT_FALSE(first.stop);
  auto next = try_pull(0, 1);
  EXPECT_TRUE(waits(next)) << "for its own push of the step before";
  EXPECT_EQ(try_push(1, 0).error, nullptr);
  EXPECT_TRUE(waits(next)) << "another worker's is not what it waits for";
  EXPECT_EQ(try_push(0, 0).result, PushResult::Applied);
  EXPECT_EQ(next.get().error, nullptr);
  EXPECT_EQ(try_pull(0, 0).get().error, nullptr) << "steps may begin again";
}

TEST_F(TrialTest, LeavesNoTrace) {
  start_core(1, Consistency::Bsp);
  try_pull(0, 0).get();
  try_push(0, 0);
  start_job();
  EXPECT_EQ(core_->version(), 0U);
  EXPECT_FLOAT_EQ(first_value(0, 0), 0.0F) << "the gradient went elsewhere";
  for (const Count what :
       {Count::RowsMade, Count::RowsPulled, Count::RowsPushed, Count::PushesApplied, Count::Rounds})
    EXPECT_EQ(count(what), 0U);
  EXPECT_EQ(push(push_job(0, 0, 1.0F)).result, PushResult::Applied) << "no duplicate of the trial's";
  EXPECT_FALSE(pull_async(0, 1).get().stop) << "its votes were none";
}

TEST_F(TrialTest, WithoutRoundsNothingWaits) {
  start_core(2, Consistency::Asp);
  EXPECT_EQ(try_pull(0, 7).get().error, nullptr);
}

TEST_F(TrialTest, WhatWaitsEndsByItsDeadlineOrWithTheWorkersFirstStep) {
  start_core(1, Consistency::Bsp);
  start_job();
  auto late = try_pull(0, 3, Clock::now());
  core_->tick(Clock::now() + std::chrono::seconds(1));
  EXPECT_EQ(late.get().error->code, ErrorCode::DeadlineExceeded);
  auto left = try_pull(0, 3);
  push(push_job(0, 0, 1.0F));
  EXPECT_EQ(left.get().error->code, ErrorCode::Cancelled);
}

TEST_F(TrialTest, GoesOnForAWorkerThatIsSlowerThanTheOthers) {
  start_core(2, Consistency::Bsp);
  for (const int worker : {0, 1}) try_pull(worker, 0).get();
  try_push(1, 0);
  start_job();
  EXPECT_EQ(push(push_job(0, 0, 1.0F)).result, PushResult::Applied) << "the other has begun the job";
  auto next = try_pull(1, 1);
  EXPECT_FALSE(waits(next)) << "its push of step 0 is not forgotten";
  EXPECT_EQ(next.get().error, nullptr);
}

TEST_F(TrialTest, BadRequestsAreRefused) {
  start_core(1, Consistency::Bsp);
  PullJob job;
  job.sender = sender(0);
  job.trial = true;
  job.dense = {9};
  std::promise<PullAnswer> answer;
  job.done = [&](PullAnswer a) { answer.set_value(std::move(a)); };
  core_->pull(std::move(job));
  EXPECT_THAT(answer.get_future().get().error->message, HasSubstr("holds no dense table 9"));
}

}  // namespace
}  // namespace braid::ps
