// Local SGD: means of variables every H steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

proto::Job averaging_job(int steps, std::vector<std::string> set) {
  set.insert(set.begin(), "strategy.kind=ALLREDUCE");
  return job_with(wide_deep_job(steps), set);
}

TEST(AveragingTest, EveryStepWithSgdIsGradientAveraging) {
  const auto rows = made_rows(51);
  for (const int world : {1, 2, 3, 4})
    for (const char* batch : {"input.global_batch_size=24", "input.global_batch_size=17"}) {
      const std::vector<std::string> sgd{"optimizer.kind=SGD", "optimizer.learning_rate=0.2", batch};
      auto averaged = sgd;
      averaged.push_back("strategy.average_every_steps=1");
      expect_near(run_leader(averaging_job(20, averaged), world, rows),
                  run_leader(averaging_job(20, sgd), world, rows), 1e-6);
    }
}

TEST(AveragingTest, AloneItIsThePlainRun) {
  const auto rows = made_rows(48);
  expect_equal(run_leader(averaging_job(20, {"strategy.average_every_steps=4"}), 1, rows),
               run_leader(averaging_job(20, {}), 1, rows));
}

TEST(AveragingTest, WorkersEndWithTheSameVariablesAndHaveLearned) {
  // 18 is no multiple of 4: the last step is a mean in any case.
  const auto runs = run_ranks(averaging_job(18, {"strategy.average_every_steps=4"}), 3, made_rows(48));
  for (const RankRun& run : runs) {
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(run.values, runs[0].values);
    EXPECT_LT(run.losses.back(), run.losses.front());
  }
  EXPECT_NE(runs[0].losses[1], runs[1].losses[1]) << "a loss between is the worker's own";
  EXPECT_EQ(runs[0].losses[3], runs[1].losses[3]) << "that of a mean is of all";
}

TEST(AveragingTest, ResumedAtAMeanTheBitsAreThose) {
  const auto rows = made_rows(48);
  TempDir directory;
  const std::vector<std::string> set{"strategy.average_every_steps=4", "checkpoint.every_steps=8",
                                     "checkpoint.directory=" + directory.path().string()};
  const RankRun whole = run_leader(averaging_job(20, {"strategy.average_every_steps=4"}), 2, rows);
  run_leader(averaging_job(8, set), 2, rows);
  RankRun rest = run_leader(averaging_job(20, set), 2, rows, RunStart::Resume);
  RankRun expected = whole;
  expected.losses.erase(expected.losses.begin(), expected.losses.begin() + 8);
  expect_equal(rest, expected);
}

TEST(AveragingTest, CheckpointsAndEvaluationsAreAtMeans) {
  EXPECT_THAT(message_of([] {
                averaging_job(8, {"strategy.average_every_steps=4", "checkpoint.every_steps=6",
                                  "checkpoint.directory=x"});
              }),
              HasSubstr("checkpoint.every_steps is 6, which must be a multiple"));
  EXPECT_THAT(message_of([] {
                averaging_job(8, {"strategy.average_every_steps=4", "evaluation.every_steps=2"});
              }),
              HasSubstr("evaluation.every_steps is 2"));
}

}  // namespace
}  // namespace braid::worker
