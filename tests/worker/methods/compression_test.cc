// Compressed gradients: what an encoder loses is in the error, and whole runs.
#include "worker/strategies/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/checkpoint_values.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& x : values) x = std::normal_distribution<float>()(random);
  return values;
}

TEST(Int8Test, WhatIsDecodedAndTheErrorAreWhatWasEncoded) {
  for (const std::int64_t count : {0, 1, 255, 256, 257, 1000})
    for (const std::int64_t block : {1, 7, 256}) {
      const std::vector<float> x = random_values(static_cast<std::size_t>(count), 1);
      std::vector<float> error = x, decoded(x.size());
      std::vector<std::byte> bytes(static_cast<std::size_t>(int8_bytes(count, block)));
      encode_int8(error.data(), count, block, bytes.data());
      add_int8(bytes.data(), count, block, decoded.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(decoded[i] + error[i], x[i], 1e-6);
        EXPECT_LE(std::fabs(error[i]), 4.0F / 127) << "at most half a step of the largest of a block";
      }
    }
}

TEST(Int8Test, InfinityIsNotLost) {
  std::vector<float> x{1, INFINITY, 2}, decoded(3);
  std::vector<std::byte> bytes(static_cast<std::size_t>(int8_bytes(3, 4)));
  encode_int8(x.data(), 3, 4, bytes.data());
  add_int8(bytes.data(), 3, 4, decoded.data());
  EXPECT_TRUE(std::isnan(decoded[0]));
}

TEST(TopKTest, TheLargestAreSentAndTheOthersStay) {
  std::vector<float> x{1, -3, 2, 3, -1, NAN};
  std::vector<std::int32_t> order(6), places(3);
  std::vector<float> values(3);
  take_largest(x.data(), 6, 3, order.data(), places.data(), values.data());
  EXPECT_EQ(places, (std::vector<std::int32_t>{1, 3, 5}));
  EXPECT_EQ(values[0], -3);
  EXPECT_EQ(values[1], 3);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(x, (std::vector<float>{1, 0, 2, 0, -1, 0}));
  std::vector<float> ties{2, -2, 2};
  take_largest(ties.data(), 3, 2, order.data(), places.data(), values.data());
  EXPECT_EQ(ties, (std::vector<float>{0, 0, 2})) << "of equal ones the first";
}

TEST(PowerTest, ColumnsBecomeOrthonormalAndDependentOnesZero) {
  std::vector<float> p = random_values(20 * 3, 2);
  for (std::size_t i = 0; i < 20; ++i) p[3 * i + 2] = 2 * p[3 * i] - p[3 * i + 1];
  orthonormalize(p.data(), 20, 3);
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (std::size_t i = 0; i < 20; ++i) sum += double{p[3 * i + a]} * double{p[3 * i + b]};
      EXPECT_NEAR(sum, a == b && a != 2 ? 1 : 0, 1e-6) << a << " " << b;
    }
  EXPECT_EQ(power_rank(4096, 4096, 4), 4);
  EXPECT_EQ(power_rank(4, 4, 4), 0) << "no smaller than the matrix";
}

struct How {
  const char* name;
  std::vector<std::string> set;
  double loss;  // that the last one may differ by
};

class CompressedRunTest : public ::testing::TestWithParam<How> {
 protected:
  static proto::Job job(int steps, std::vector<std::string> more = {}) {
    std::vector<std::string> set{"strategy.kind=ALLREDUCE", "optimizer.kind=SGD",
                                 "optimizer.learning_rate=0.2"};
    set.insert(set.end(), GetParam().set.begin(), GetParam().set.end());
    set.insert(set.end(), more.begin(), more.end());
    return job_with(wide_deep_job(steps), set);
  }
  static proto::Job plain(int steps) {
    return job_with(wide_deep_job(steps),
                    {"strategy.kind=ALLREDUCE", "optimizer.kind=SGD", "optimizer.learning_rate=0.2"});
  }
};

TEST_P(CompressedRunTest, LearnsNearlyAsWithout) {
  const auto rows = made_rows(48);
  for (const int world : {2, 3, 4}) {
    const auto runs = run_ranks(job(60), world, rows);
    for (const RankRun& run : runs) {
      ASSERT_EQ(run.error, "");
      EXPECT_EQ(run.losses, runs[0].losses);
      for (const auto& [name, values] : run.values)
        if (!name.ends_with("/error")) {
          EXPECT_EQ(values, runs[0].values.at(name)) << name;
        }
    }
    EXPECT_NEAR(runs[0].losses.back(), run_leader(plain(60), world, rows).losses.back(), GetParam().loss);
  }
  expect_equal(run_leader(job(20), 1, rows), run_leader(plain(20), 1, rows));
}

TEST_P(CompressedRunTest, ResumedTheBitsAreThose) {
  const auto rows = made_rows(48);
  TempDir directory;
  const std::vector<std::string> saved{"checkpoint.every_steps=10",
                                       "checkpoint.directory=" + directory.path().string()};
  RankRun expected = run_leader(job(25), 2, rows);
  run_leader(job(10, saved), 2, rows);
  expected.losses.erase(expected.losses.begin(), expected.losses.begin() + 10);
  expect_equal(run_leader(job(25, saved), 2, rows, RunStart::Resume), expected);
}

/// The sum over ranks of all errors.
double all_errors(const std::vector<RankRun>& runs) {
  double sum = 0;
  for (const RankRun& run : runs)
    for (const auto& [name, values] : run.values)
      if (name.ends_with("/error"))
        for (const float x : values) sum += double{x};
  return sum;
}

TEST_P(CompressedRunTest, AnotherNumberOfWorkersSharesTheErrors) {
  const auto rows = made_rows(48);
  TempDir directory;
  const std::vector<std::string> saved{"checkpoint.every_steps=10",
                                       "checkpoint.directory=" + directory.path().string()};
  const auto before = run_ranks(job(10, saved), 2, rows);
  // No step is left: each rank has what it has read.
  const auto after = run_ranks(job(10, saved), 3, rows, RunStart::Resume);
  for (const RankRun& run : after) EXPECT_EQ(run.error, "");
  EXPECT_NE(all_errors(before), 0);
  EXPECT_NEAR(all_errors(after), all_errors(before), 1e-5);
  EXPECT_EQ(after[1].values, after[2].values);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CompressedRunTest,
    ::testing::Values(
        How{"int8", {"strategy.compression.kind=INT8", "strategy.compression.block=16"}, 5e-3},
        How{"top_k", {"strategy.compression.kind=TOP_K", "strategy.compression.keep=0.2"}, 5e-2},
        How{"power_sgd", {"strategy.compression.kind=POWER_SGD", "strategy.compression.rank=2"}, 5e-2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CompressedRunTest, ToSendAllIsToSendNothingElse) {
  const auto rows = made_rows(48);
  const auto run = [&](std::vector<std::string> set) {
    set.push_back("strategy.kind=ALLREDUCE");
    return run_leader(job_with(wide_deep_job(20), set), 2, rows);
  };
  expect_equal(run({"strategy.compression.kind=TOP_K", "strategy.compression.keep=1"}), run({}));
}

}  // namespace
}  // namespace braid::worker
