#include "worker/job/schedule.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

proto::Job job(const std::string& schedule) {
  return parse_job("optimizer { learning_rate: 2 } schedule { " + schedule + " }", "j");
}

TEST(ScheduleTest, ConstantIsConstant) {
  EXPECT_FLOAT_EQ(learning_rate(job(""), 0, 10), 2.0F);
  EXPECT_FLOAT_EQ(learning_rate(job(""), 9, 10), 2.0F);
}

TEST(ScheduleTest, WarmUpRisesLinearlyAndThenTheScheduleBegins) {
  const auto j = job("kind: LINEAR_DECAY warmup_steps: 4 end_factor: 0.5");
  EXPECT_FLOAT_EQ(learning_rate(j, 0, 14), 0.5F);
  EXPECT_FLOAT_EQ(learning_rate(j, 3, 14), 2.0F);
  EXPECT_FLOAT_EQ(learning_rate(j, 4, 14), 2.0F);
  EXPECT_FLOAT_EQ(learning_rate(j, 9, 14), 1.5F);
  EXPECT_FLOAT_EQ(learning_rate(j, 100, 14), 1.0F) << "beyond the end it stays";
}

TEST(ScheduleTest, CosineIsHalfWayInTheMiddle) {
  const auto j = job("kind: COSINE_DECAY end_factor: 0.1");
  EXPECT_FLOAT_EQ(learning_rate(j, 0, 100), 2.0F);
  EXPECT_NEAR(learning_rate(j, 50, 100), 2.0 * 0.55, 1e-6);
}

TEST(ScheduleTest, StepsMultiply) {
  const auto j = job("kind: STEP_DECAY factor: 0.5 every: 10");
  EXPECT_FLOAT_EQ(learning_rate(j, 9, 100), 2.0F);
  EXPECT_FLOAT_EQ(learning_rate(j, 10, 100), 1.0F);
  EXPECT_FLOAT_EQ(learning_rate(j, 35, 100), 0.25F);
}

TEST(ScheduleTest, WorkersDrawNumbersOfTheirOwnAndTheFirstTheJobs) {
  const auto j = parse_job("seed: 7", "j"), other = parse_job("seed: 8", "j");
  EXPECT_EQ(random_seed(j, 0), 7U);
  const std::set<std::uint64_t> seeds{random_seed(j, 0),     random_seed(j, 1),     random_seed(j, 2),
                                      random_seed(other, 0), random_seed(other, 1), random_seed(other, 2)};
  EXPECT_EQ(seeds.size(), 6U);
}

}  // namespace
}  // namespace braid::worker
