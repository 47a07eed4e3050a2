// Several workers that are each the home of a part of the rows, in whole runs: the losses, bit for bit, of
// HYBRID whose tables are spread by rows, whatever has room at a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/input/formats/readers.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

constexpr int kHomeSteps = 40;

/// Few ids are in most rows, and most in few; with `equal` all are one.
std::shared_ptr<const Table> rows_with_ids(int rows, bool equal = false) {
  Tensor dense(DType::Float32, Shape{rows, 2}), sparse(DType::Int64, Shape{rows, 2}),
      label(DType::Float32, Shape{rows});
  for (int i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    dense.data<float>()[2 * at] = static_cast<float>(i % 7) / 7;
    dense.data<float>()[2 * at + 1] = static_cast<float>(i % 5) / 5;
    sparse.data<std::int64_t>()[2 * at] = equal ? 17 : i % 3 == 0 ? i * 17 % 290 : i % 4;
    sparse.data<std::int64_t>()[2 * at + 1] = equal ? 17 : i % 2 == 0 ? i * 31 % 270 : i % 9;
    label.data<float>()[at] = static_cast<float>((i * 3 + i % 4) % 2);
  }
  return table_of_arrays({{"dense", dense}, {"sparse", sparse}, {"label", label}});
}

proto::Job homes_job(const std::string& kind, const Strings& set, int cache_rows = 0) {
  Strings all{"strategy.kind=" + kind, "model.hash_buckets=300"};
  if (kind == "HYBRID") {
    all.emplace_back("strategy.hybrid=ids: DISTINCT table { match: '.*' plan: ROW }");
  } else {
    all.emplace_back("model.sparse_tables=true");
    all.push_back("strategy.ps.cache_rows=" + std::to_string(cache_rows));
  }
  all.insert(all.end(), set.begin(), set.end());
  return job_with(wide_deep_job(kHomeSteps), all);
}

ServedRun expect_losses_of_hybrid(const Strings& set, int cache_rows, int workers, int servers,
                                  bool equal = false) {
  const auto rows = rows_with_ids(480, equal);
  const std::vector<RankRun> hybrid = run_ranks(homes_job("HYBRID", set), workers, rows);
  const ServedRun homes =
      run_with_servers(homes_job("PS_ALLREDUCE", set, cache_rows), workers, servers, rows);
  for (std::size_t w = 0; w < homes.workers.size(); ++w) {
    EXPECT_EQ(homes.workers[w].error, "");
    EXPECT_EQ(hybrid[w].error, "");
    EXPECT_EQ(homes.workers[w].losses.size(), std::size_t{kHomeSteps});
    EXPECT_EQ(homes.workers[w].losses, hybrid[w].losses) << "worker " << w;
  }
  EXPECT_EQ(counted(homes, "pushes_applied"), 0U) << "servers update nothing";
  return homes;
}

TEST(HomesTest, WithRoomForAnyNumberOfRowsTheLossesAreThoseOfHybrid) {
  for (const int workers : {2, 3})
    for (const int cache_rows : {48, 100, 1000})
      for (const int servers : {1, 2}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(cache_rows) + " rows, " +
                     std::to_string(servers) + " servers");
        const ServedRun run = expect_losses_of_hybrid({}, cache_rows, workers, servers);
        for (const RankRun& worker : run.workers) {
          EXPECT_GT(worker.cache.hits, 0U);
          if (cache_rows == 48) {
            EXPECT_GT(worker.cache.evictions, 0U);
          }
          if (cache_rows == 1000) {
            EXPECT_EQ(worker.cache.evictions, 0U);
          }
        }
      }
}

TEST(HomesTest, TheLossesAreThoseOfOneProcess) {
  const auto rows = rows_with_ids(480);
  const RankRun alone = run_leader(homes_job("LOCAL", {}), 1, rows);
  const ServedRun homes = run_with_servers(homes_job("PS_ALLREDUCE", {}, 60), 2, 2, rows);
  ASSERT_EQ(homes.workers[0].losses.size(), alone.losses.size());
  for (std::size_t s = 0; s < 20; ++s) EXPECT_NEAR(homes.workers[0].losses[s], alone.losses[s], 1e-6);
}

TEST(HomesTest, AnyOptimizerHasTheBitsOfHybrid) {
  for (const std::string optimizer : {"SGD", "MOMENTUM", "ADAGRAD", "RMSPROP", "FTRL", "ADAMW"}) {
    SCOPED_TRACE(optimizer);
    expect_losses_of_hybrid({"optimizer.kind=" + optimizer}, 60, 2, 2);
  }
  expect_losses_of_hybrid({"optimizer.kind=ADAGRAD", "optimizer.row_wise=true"}, 60, 2, 1);
  expect_losses_of_hybrid({"optimizer.l1=0.001", "optimizer.clip_value=0.01"}, 60, 2, 1);
}

/// The norm is of all workers' gradients. Its squares are added up in another order.
TEST(HomesTest, ANormIsThatOfOneProcess) {
  const auto rows = rows_with_ids(480);
  const Strings clips{"optimizer.clip_norm=0.05"};
  const RankRun alone = run_leader(homes_job("LOCAL", clips), 1, rows);
  const ServedRun homes = run_with_servers(homes_job("PS_ALLREDUCE", clips, 60), 2, 2, rows);
  ASSERT_EQ(homes.workers[0].losses.size(), alone.losses.size());
  for (std::size_t s = 0; s < 20; ++s) EXPECT_NEAR(homes.workers[0].losses[s], alone.losses[s], 1e-6);
}

TEST(HomesTest, WhateverElseAStepDoesHasTheBitsOfHybrid) {
  for (const Strings& set : {Strings{"runtime.steps_in_flight=1"}, Strings{"runtime.steps_in_flight=4"},
                             Strings{"streams.count=3", "streams.policy=COST"},
                             Strings{"runtime.check_numerics=true"}, Strings{"strategy.bucket_bytes=100000"},
                             Strings{"staging.enabled=false"}, Strings{"optimizer.accumulate_steps=2"}}) {
    SCOPED_TRACE(set.front());
    expect_losses_of_hybrid(set, 100, 2, 2);
  }
}

/// Ids of one worker then are all another's: a rank that holds no row of a batch, and one that holds all.
TEST(HomesTest, AllIdsMayBeEqual) {
  expect_losses_of_hybrid({}, 48, 2, 2, true);
  expect_losses_of_hybrid({}, 48, 3, 1, true);
}

TEST(HomesTest, WorkersMayHaveDifferentNumbersOfRows) {
  for (const char* rows : {"input.global_batch_size=25", "input.global_batch_size=2"})
    expect_losses_of_hybrid({rows}, 60, 2, 1);
}

TEST(HomesTest, FewerRowsThanABatchNeedsAreRefusedWithTheNumber) {
  const ServedRun run = run_with_servers(homes_job("PS_ALLREDUCE", {}, 47), 2, 1, rows_with_ids(480));
  for (const RankRun& worker : run.workers) {
    EXPECT_THAT(worker.error, HasSubstr("strategy.ps.cache_rows is 47"));
    EXPECT_THAT(worker.error, HasSubstr("set 48 or more"));
  }
}

}  // namespace
}  // namespace braid::worker
