// Rows cached on the workers, in whole runs: under BSP the same losses, bit for bit, as without; under ASP
// and SSP no row older than asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/input/formats/readers.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

using Strings = std::vector<std::string>;

constexpr int kSteps = 40;

/// Few ids are in most rows, and most in few.
std::shared_ptr<const Table> skewed_rows(int rows) {
  Tensor dense(DType::Float32, Shape{rows, 2}), sparse(DType::Int64, Shape{rows, 2}),
      label(DType::Float32, Shape{rows});
  for (int i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    dense.data<float>()[2 * at] = static_cast<float>(i % 7) / 7;
    dense.data<float>()[2 * at + 1] = static_cast<float>(i % 5) / 5;
    sparse.data<std::int64_t>()[2 * at] = i % 3 == 0 ? i * 17 % 290 : i % 4;
    sparse.data<std::int64_t>()[2 * at + 1] = i % 2 == 0 ? i * 31 % 270 : i % 9;
    label.data<float>()[at] = static_cast<float>((i * 3 + i % 4) % 2);
  }
  return table_of_arrays({{"dense", dense}, {"sparse", sparse}, {"label", label}});
}

proto::Job job_with_cache(const Strings& set) {
  Strings all{"strategy.kind=PS", "model.sparse_tables=true", "model.hash_buckets=300"};
  all.insert(all.end(), set.begin(), set.end());
  return job_with(wide_deep_job(kSteps), all);
}

Strings with(Strings set, const std::string& more) {
  set.push_back(more);
  return set;
}

ServedRun expect_same_cached(const Strings& set, int cache_rows, int workers, int servers) {
  const auto rows = skewed_rows(480);
  const ServedRun cached = run_with_servers(
                      job_with_cache(with(set, "strategy.ps.cache_rows=" + std::to_string(cache_rows))),
                      workers, servers, rows),
                  its = run_with_servers(job_with_cache(set), workers, servers, rows);
  for (std::size_t w = 0; w < cached.workers.size(); ++w) {
    EXPECT_EQ(cached.workers[w].error, "");
    EXPECT_EQ(its.workers[w].error, "");
    EXPECT_EQ(cached.workers[w].losses.size(), std::size_t{kSteps});
    EXPECT_EQ(cached.workers[w].losses, its.workers[w].losses) << "worker " << w;
  }
  EXPECT_EQ(counted(cached, "rows_made"), counted(its, "rows_made"));
  EXPECT_LT(counted(cached, "rows_pulled"), counted(its, "rows_pulled"));
  return cached;
}

TEST(PsCacheTest, ACacheOfAnySizeHasTheSameBits) {
  for (const int workers : {1, 2, 3})
    for (const int cache_rows : {48, 100, 1000})
      for (const int servers : {1, 2}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(cache_rows) + " rows, " +
                     std::to_string(servers) + " servers");
        const ServedRun run = expect_same_cached({}, cache_rows, workers, servers);
        if (workers == 1)
          EXPECT_EQ(counted(run, "rows_changed"), 0U) << "nobody else changes rows";
        else
          EXPECT_GT(counted(run, "rows_changed"), 0U);
      }
}

/// One worker is the rows' home, several have copies.
TEST(PsCacheTest, AnyOptimizerHasTheSameBits) {
  for (const int workers : {1, 2}) {
    for (const std::string optimizer : {"SGD", "MOMENTUM", "ADAGRAD", "ADAM", "RMSPROP", "FTRL", "ADAMW"}) {
      SCOPED_TRACE(optimizer);
      expect_same_cached({"optimizer.kind=" + optimizer}, 100, workers, 2);
    }
    expect_same_cached({"optimizer.l1=0.001", "optimizer.clip_value=0.01"}, 100, workers, 1);
  }
}

TEST(PsCacheTest, AtHomeASlotMayBeANumberARow) {
  expect_same_cached({"optimizer.kind=ADAGRAD", "optimizer.row_wise=true"}, 60, 1, 2);
}

/// What is pushed is nothing, and what is pulled has no room.
TEST(PsCacheTest, AtHomeServersHearOfWhatHasNoRoomAlone) {
  const ServedRun all = expect_same_cached({}, 1000, 1, 2);
  EXPECT_EQ(counted(all, "pushes_applied"), 0U);
  EXPECT_EQ(all.workers[0].cache.misses, counted(all, "rows_made"));
  EXPECT_EQ(all.workers[0].cache.evictions, 0U);
  const ServedRun few = expect_same_cached({}, 48, 1, 2);
  EXPECT_GT(few.workers[0].cache.evictions, 0U);
  EXPECT_GT(few.workers[0].cache.hits, 0U);
}

/// Tables of one dim whose optimizers have different slots are kept apart.
TEST(PsCacheTest, TablesWithOptimizersOfTheirOwnHaveTheSameBits) {
  const auto rows = skewed_rows(480);
  const auto losses = [&](int cache_rows) {
    proto::Job job = job_with_cache({"strategy.ps.cache_rows=" + std::to_string(cache_rows)});
    auto* group = job.mutable_optimizer()->add_group();
    group->set_match("(wide|deep)/.*1/.*");
    group->set_kind(proto::Optimizer::SGD);
    group->set_learning_rate(0.05F);
    const ServedRun run = run_with_servers(job, 2, 1, rows);
    EXPECT_EQ(run.workers[0].error, "");
    return run.workers[0].losses;
  };
  EXPECT_EQ(losses(100), losses(0));
}

TEST(PsCacheTest, WhateverElseAStepDoesHasTheSameBits) {
  for (const int workers : {1, 2})
    for (const Strings& set :
         {Strings{"strategy.ps.pull_ahead=true"}, Strings{"runtime.steps_in_flight=1"},
          Strings{"runtime.steps_in_flight=4"}, Strings{"streams.count=3", "streams.policy=COST"},
          Strings{"staging.auto_stage=true"}, Strings{"runtime.check_numerics=true"},
          Strings{"strategy.bucket_bytes=100000"}, Strings{"optimizer.accumulate_steps=2"},
          Strings{"input.global_batch_size=25"}}) {
      SCOPED_TRACE(set.front());
      expect_same_cached(set, 100, workers, 2);
    }
}

TEST(PsCacheTest, FewerRowsThanABatchNeedsAreRefusedWithTheNumber) {
  const ServedRun run =
      run_with_servers(job_with_cache({"strategy.ps.cache_rows=20"}), 1, 1, skewed_rows(480));
  EXPECT_THAT(run.workers[0].error, ::testing::HasSubstr("strategy.ps.cache_rows is 20"));
  EXPECT_THAT(run.workers[0].error, ::testing::HasSubstr("set 48 or more"));
}

TEST(PsCacheTest, WithoutRoundsRowsAreAsOldAsAskedForAtMost) {
  for (const Strings& set :
       {Strings{"strategy.consistency=ASP"}, Strings{"strategy.consistency=SSP", "strategy.staleness=2"}}) {
    SCOPED_TRACE(set.front());
    for (const int age : {1, 5}) {
      const ServedRun run =
          run_with_servers(job_with_cache(with(with(set, "strategy.ps.cache_rows=200"),
                                               "strategy.ps.cache_age=" + std::to_string(age))),
                           2, 2, skewed_rows(480));
      for (const RankRun& worker : run.workers) {
        EXPECT_EQ(worker.error, "");
        EXPECT_EQ(worker.losses.size(), std::size_t{kSteps});
        EXPECT_GT(worker.cache.hits, 0U);
        EXPECT_GT(worker.cache.expired, 0U);
        EXPECT_EQ(worker.cache.largest_age, static_cast<std::uint64_t>(age));
      }
    }
  }
}

/// One worker's rows are changed by itself alone, so that ASP has what BSP has.
TEST(PsCacheTest, OneWorkersRowsAreItsOwnWhateverTheirAge) {
  const auto rows = skewed_rows(480);
  const ServedRun asp =
      run_with_servers(job_with_cache({"strategy.consistency=ASP", "strategy.ps.cache_rows=1000",
                                       "strategy.ps.cache_age=1000", "runtime.steps_in_flight=1"}),
                       1, 2, rows);
  const ServedRun bsp = run_with_servers(job_with_cache({"runtime.steps_in_flight=1"}), 1, 2, rows);
  EXPECT_EQ(asp.workers[0].error, "");
  EXPECT_EQ(asp.workers[0].losses, bsp.workers[0].losses);
}

}  // namespace
}  // namespace braid::worker
