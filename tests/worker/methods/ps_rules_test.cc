// SSP and TIMED in whole runs: workers are threads, servers are real ones over sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

proto::Job served_job(int steps, std::vector<std::string> set) {
  set.insert(set.begin(), {"strategy.kind=PS", "model.sparse_tables=true", "strategy.bucket_bytes=100000"});
  return job_with(wide_deep_job(steps), set);
}

void expect_same_workers(const ServedRun& a, const ServedRun& b) {
  for (std::size_t w = 0; w < a.workers.size(); ++w) {
    EXPECT_EQ(a.workers[w].error, "");
    EXPECT_EQ(b.workers[w].error, "");
    // Values at the end are those of the last round that the reader has come to see.
    EXPECT_EQ(a.workers[w].losses, b.workers[w].losses);
  }
}

/// The last pushes of another worker come later than the leader's end.
TEST(BspTest, WhatTheLeaderEvaluatesHasTheLastRoundOfAllWorkers) {
  constexpr int kSteps = 8;
  const auto rows = made_rows(48);
  const proto::Job job = served_job(kSteps, {"runtime.steps_in_flight=1"});
  const ServedRun late = run_with_servers(job, 2, 2, rows, [](int rank, std::uint64_t step) {
    if (rank == 1 && step == kSteps - 2) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  });
  const ServedRun in_time = run_with_servers(job, 2, 2, rows, [](int rank, std::uint64_t step) {
    if (rank == 0 && step == kSteps - 2) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  });
  EXPECT_EQ(late.workers[0].error, "");
  expect_equal(late.workers[0], in_time.workers[0]);
}

TEST(SspTest, WithoutStalenessItIsBspBitForBit) {
  const auto rows = made_rows(48);
  expect_same_workers(
      run_with_servers(served_job(15, {"strategy.consistency=SSP", "strategy.staleness=0"}), 2, 2, rows),
      run_with_servers(served_job(15, {}), 2, 2, rows));
}

TEST(SspTest, NobodyIsFurtherAheadThanTheStaleness) {
  const auto rows = made_rows(48);
  for (const std::uint64_t staleness : {1U, 3U}) {
    const ServedRun run = run_with_servers(
        served_job(40, {"strategy.consistency=SSP", "strategy.staleness=" + std::to_string(staleness)}), 3, 2,
        rows, [](int rank, std::uint64_t step) {
          if (rank == 1 && step % 10 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(60));
        });
    for (const RankRun& worker : run.workers) {
      ASSERT_EQ(worker.error, "");
      EXPECT_EQ(worker.losses.size(), 40U);
      EXPECT_LT(worker.losses.back(), worker.losses.front());
    }
    std::uint64_t pulls = 0;
    for (std::uint64_t behind = 0; behind < 50; ++behind) {
      const std::uint64_t count = counted(run, "pulls_stale_by_" + std::to_string(behind));
      if (count > 0) std::printf("staleness bound %lu: %lu pulls stale by %lu\n", staleness, count, behind);
      pulls += count;
      if (behind > staleness) {
        EXPECT_EQ(count, 0U) << behind;
      }
    }
    EXPECT_GT(pulls, 0U);
    EXPECT_GT(counted(run, "pulls_stale_by_" + std::to_string(staleness)), 0U)
        << "the others do run ahead of one that sleeps";
  }
}

TEST(TimedTest, WithAllWorkersOrWithoutAnEndItIsBspBitForBit) {
  const auto rows = made_rows(48);
  const ServedRun bsp = run_with_servers(served_job(15, {}), 2, 2, rows);
  expect_same_workers(run_with_servers(served_job(15, {"strategy.consistency=TIMED"}), 2, 2, rows), bsp);
  const ServedRun long_wait =
      run_with_servers(served_job(15, {"strategy.consistency=TIMED", "strategy.timed.quorum=1",
                                       "strategy.timed.timeout_millis=60000"}),
                       2, 2, rows);
  expect_same_workers(long_wait, bsp);
  EXPECT_EQ(counted(long_wait, "pushes_dropped"), 0U);
}

TEST(TimedTest, AWorkerThatSleepsBetweenStepsMissesRoundsAndEndsWithTheOthers) {
  const auto rows = made_rows(48);
  const ServedRun run = run_with_servers(
      served_job(
          60, {"strategy.consistency=TIMED", "strategy.timed.quorum=2", "strategy.timed.timeout_millis=20"}),
      3, 2, rows, [](int rank, std::uint64_t step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (rank == 1 && step % 10 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      });
  for (const RankRun& worker : run.workers) {
    EXPECT_EQ(worker.error, "");
    EXPECT_LT(worker.losses.back(), worker.losses.front());
  }
  EXPECT_EQ(run.workers[0].losses.size(), 60U);
  EXPECT_LT(run.workers[1].losses.size(), 60U);
}

TEST(TimedTest, BackupWorkersAreNotWaitedFor) {
  const auto rows = made_rows(48);
  const ServedRun run =
      run_with_servers(served_job(30, {"strategy.consistency=TIMED", "strategy.timed.quorum=2",
                                       "strategy.timed.timeout_millis=0", "runtime.steps_in_flight=1"}),
                       3, 1, rows, [](int rank, std::uint64_t) {
                         std::this_thread::sleep_for(std::chrono::milliseconds(rank == 2 ? 60 : 5));
                       });
  for (const RankRun& worker : run.workers) EXPECT_EQ(worker.error, "");
  EXPECT_LT(run.seconds, 29 * 0.06 * 0.7) << "two of three are enough";
  EXPECT_LT(run.workers[0].losses.back(), run.workers[0].losses.front());
}

}  // namespace
}  // namespace braid::worker
