// Optimizer slots and gradients that are spread over the ranks: against the run that has them everywhere.
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

constexpr const char* kGroups[] = {"optimizer.group=match: '.*bias' kind: SGD"};

proto::Job sharded_job(int steps, std::vector<std::string> set) {
  set.insert(set.begin(), "strategy.kind=ALLREDUCE");
  return job_with(wide_deep_job(steps), set);
}

std::vector<std::string> and_also(std::vector<std::string> set, const std::vector<std::string>& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

class ShardedUpdatesTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<std::string> sharded() const { return {std::string("strategy.shard=") + GetParam()}; }
};

TEST_P(ShardedUpdatesTest, WithOneOrTwoWorkersTheBitsAreThoseWithout) {
  const auto rows = made_rows(48);
  for (const int world : {1, 2})
    for (const char* batch : {"input.global_batch_size=24", "input.global_batch_size=17"})
      for (const char* kind : {"SGD", "MOMENTUM", "ADAM", "RMSPROP"}) {
        const std::vector<std::string> set{batch, std::string("optimizer.kind=") + kind,
                                           "strategy.bucket_bytes=100000"};
        expect_equal(run_leader(sharded_job(12, and_also(set, sharded())), world, rows),
                     run_leader(sharded_job(12, set), world, rows));
      }
}

TEST_P(ShardedUpdatesTest, WithMoreTheyDifferByRoundingAlone) {
  const auto rows = made_rows(51);
  for (const int world : {3, 4}) {
    const std::vector<std::string> set{"optimizer.kind=MOMENTUM", "optimizer.clip_norm=0.3"};
    const auto runs = run_ranks(sharded_job(20, and_also(set, sharded())), world, rows);
    for (const RankRun& run : runs) {
      ASSERT_EQ(run.error, "");
      EXPECT_EQ(run.losses, runs[0].losses);
    }
    expect_near(runs[0], run_leader(sharded_job(20, set), world, rows), 1e-6);
  }
}

TEST_P(ShardedUpdatesTest, VariablesKeepTheirOwnOptimizers) {
  const auto rows = made_rows(48);
  const std::vector<std::string> set{kGroups[0], "strategy.bucket_bytes=100000"};
  expect_equal(run_leader(sharded_job(12, and_also(set, sharded())), 2, rows),
               run_leader(sharded_job(12, set), 2, rows));
}

TEST_P(ShardedUpdatesTest, CheckpointsAreThoseOfEveryNumberOfWorkers) {
  const auto rows = made_rows(48);
  const RankRun whole = run_leader(sharded_job(20, {}), 2, rows);
  RankRun expected = whole;
  expected.losses.erase(expected.losses.begin(), expected.losses.begin() + 10);
  const auto directory_of = [](const TempDir& directory) {
    return std::vector<std::string>{"checkpoint.every_steps=10",
                                    "checkpoint.directory=" + directory.path().string()};
  };
  {  // sharded, then sharded: the same bits
    TempDir directory;
    const auto set = and_also(sharded(), directory_of(directory));
    run_leader(sharded_job(10, set), 2, rows);
    expect_equal(run_leader(sharded_job(20, set), 2, rows, RunStart::Resume), expected);
  }
  {  // sharded, then whole, and the other way round
    TempDir directory, other;
    run_leader(sharded_job(10, and_also(sharded(), directory_of(directory))), 2, rows);
    expect_equal(run_leader(sharded_job(20, directory_of(directory)), 2, rows, RunStart::Resume), expected);
    run_leader(sharded_job(10, directory_of(other)), 2, rows);
    expect_equal(
        run_leader(sharded_job(20, and_also(sharded(), directory_of(other))), 2, rows, RunStart::Resume),
        expected);
  }
  {  // another number of workers
    TempDir directory;
    const auto set = and_also(sharded(), directory_of(directory));
    run_leader(sharded_job(10, set), 4, rows);
    expect_near(run_leader(sharded_job(20, set), 3, rows, RunStart::Resume), expected, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ShardedUpdatesTest, ::testing::Values("OPTIMIZER", "GRADIENTS"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::worker
