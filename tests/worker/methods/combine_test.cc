// Reductions that look at each worker's gradient: the formulas, and whole runs of which the result is known.
#include "worker/strategies/combine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "engine/input/formats/readers.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The formula of two, as the paper has it.
Vector adasum(const Vector& a, const Vector& b) {
  const double ab = dot(a, b);
  Vector sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    sum[i] = (1 - ab / (2 * dot(a, a))) * a[i] + (1 - ab / (2 * dot(b, b))) * b[i];
  return sum;
}

Vector by_coefficients(const std::vector<Vector>& gradients) {
  const std::size_t world = gradients.size();
  Vector products, coefficients(world), scratch(2 * world * world);
  for (const Vector& a : gradients)
    for (const Vector& b : gradients) products.push_back(dot(a, b));
  adasum_coefficients(products, coefficients, scratch);
  Vector sum(gradients[0].size());
  for (std::size_t w = 0; w < world; ++w)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += coefficients[w] * gradients[w][i];
  return sum;
}

std::vector<Vector> random_gradients(int world, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Vector> gradients(static_cast<std::size_t>(world), Vector(9));
  for (Vector& gradient : gradients)
    for (double& x : gradient) x = normal(random);
  return gradients;
}

TEST(AdasumTest, NeighboursAreCombinedThenTheirResults) {
  const auto g = random_gradients(5, 1);
  const Vector expected = adasum(adasum(adasum(g[0], g[1]), adasum(g[2], g[3])), g[4]);
  const Vector got = by_coefficients(g);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
}

TEST(AdasumTest, EqualGradientsAreAveragedAndOrthogonalOnesAdded) {
  const Vector one{1, 2, 0}, other{-2, 1, 0}, third{0, 0, 4};
  EXPECT_EQ(by_coefficients({one, one, one, one}), one);
  EXPECT_EQ(by_coefficients({one, other, third}), (Vector{-1, 3, 4}));
  EXPECT_EQ(by_coefficients({one, Vector(3)}), one) << "a gradient of zeros";
}

TEST(MedianTest, IsTheMiddleOfEachElement) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  std::vector<float> values{1, 5, nan, /**/ 2, nan, -inf, /**/ 9, 4, 7};
  std::vector<float> result(3);
  combine_sorted(values.data(), 3, 3, median_trim(3), 3, result.data());
  EXPECT_EQ(result, (std::vector<float>{2, 5, 7}));
  std::vector<float> four{1, 8, 2, 4};
  combine_sorted(four.data(), 1, 4, median_trim(4), 1, result.data());
  EXPECT_EQ(result[0], 3);
}

TEST(TrimmedMeanTest, LeavesOutTheEnds) {
  std::mt19937 random(7);
  for (int world = 1; world <= 9; ++world)
    for (int trim = 0; 2 * trim < world; ++trim) {
      std::vector<float> values(static_cast<std::size_t>(world));
      for (float& x : values) x = std::uniform_real_distribution<float>(-1, 1)(random);
      std::vector<float> sorted = values;
      std::ranges::sort(sorted);
      double expected = 0;
      for (int w = trim; w < world - trim; ++w) expected += double{sorted[static_cast<std::size_t>(w)]};
      float result = 0;
      combine_sorted(values.data(), 1, world, trim, 1, &result);
      EXPECT_NEAR(result, expected / (world - 2 * trim), 1e-6);
    }
}

/// Every worker's part of every batch: the same eight rows. Those of the last are `bad`.
std::shared_ptr<const Table> same_rows(int world, bool bad) {
  const auto eight = made_rows(8);
  const auto repeated = [&](const char* name) {
    const Tensor& part = eight->find(name)->data;
    std::vector<std::int64_t> dims(part.shape().dims().begin(), part.shape().dims().end());
    dims[0] *= world;
    Tensor all(part.dtype(), Shape(dims));
    for (int w = 0; w < world; ++w)
      std::ranges::copy(part.as_bytes(),
                        all.as_bytes().begin() + static_cast<std::ptrdiff_t>(part.bytes()) * w);
    return all;
  };
  Tensor dense = repeated("dense");
  if (bad)
    for (int i = 8 * (world - 1); i < 8 * world; ++i)
      dense.data<float>()[static_cast<std::size_t>(2 * i)] = std::numeric_limits<float>::quiet_NaN();
  return table_of_arrays({{"dense", dense}, {"sparse", repeated("sparse")}, {"label", repeated("label")}});
}

proto::Job combining_job(int world, std::vector<std::string> set) {
  set.insert(set.begin(), {"strategy.kind=ALLREDUCE", "input.global_batch_size=" + std::to_string(8 * world),
                           "optimizer.kind=SGD", "optimizer.learning_rate=0.2"});
  return job_with(wide_deep_job(12), set);
}

RankRun alone() {
  return run_leader(job_with(wide_deep_job(12), {"input.global_batch_size=8", "optimizer.kind=SGD",
                                                 "optimizer.learning_rate=0.2"}),
                    1, made_rows(8));
}

class CombineRunTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CombineRunTest, WorkersThatAgreeLearnAsOne) {
  const std::string reduction = std::string("strategy.reduction=") + GetParam();
  for (const int world : {1, 2, 3, 4}) {
    if (reduction.ends_with("TRIMMED_MEAN") && world < 3) continue;
    expect_near(run_leader(combining_job(world, {reduction}), world, same_rows(world, false)), alone(), 1e-6);
  }
}
INSTANTIATE_TEST_SUITE_P(Reductions, CombineRunTest,
                         ::testing::Values("MEAN", "WORKER_MEAN", "ADASUM", "MEDIAN", "TRIMMED_MEAN"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CombineRunTest, ABadWorkerChangesNothingUnderMedianAndTrimmedMean) {
  for (const char* reduction : {"MEDIAN", "TRIMMED_MEAN"}) {
    const RankRun run =
        run_leader(combining_job(3, {std::string("strategy.reduction=") + reduction}), 3, same_rows(3, true));
    expect_equal(run, alone());
  }
  EXPECT_THAT(run_ranks(combining_job(3, {}), 3, same_rows(3, true))[0].error,
              ::testing::HasSubstr("loss is"))
      << "a mean does not bear it";
}

TEST(CombineRunTest, ASumIsTheMeanTimesTheWorkers) {
  const auto rows = made_rows(48);
  const std::vector<std::string> set{"strategy.kind=ALLREDUCE", "optimizer.kind=SGD"};
  auto mean = set, sum = set;
  mean.push_back("optimizer.learning_rate=0.2");
  sum.insert(sum.end(), {"optimizer.learning_rate=0.1", "strategy.reduction=SUM"});
  expect_near(run_leader(job_with(wide_deep_job(12), sum), 2, rows),
              run_leader(job_with(wide_deep_job(12), mean), 2, rows), 1e-6);
}

TEST(CombineRunTest, WorkersOfDifferentSizesCountAlikeUnderWorkerMeanAlone) {
  const auto rows = made_rows(51);
  const auto run = [&](const char* reduction) {
    return run_leader(job_with(wide_deep_job(12),
                               {"strategy.kind=ALLREDUCE", "optimizer.kind=SGD", "input.global_batch_size=17",
                                std::string("strategy.reduction=") + reduction}),
                      2, rows);
  };
  const RankRun mean = run("MEAN"), worker_mean = run("WORKER_MEAN");
  EXPECT_NEAR(mean.losses[0], worker_mean.losses[0], 1e-6) << "the loss is of the rows";
  EXPECT_NE(mean.losses.back(), worker_mean.losses.back());
}

TEST(CombineRunTest, MoreThanThereAreCannotBeLeftOut) {
  EXPECT_THAT(
      run_ranks(combining_job(2, {"strategy.reduction=TRIMMED_MEAN"}), 2, same_rows(2, false))[0].error,
      ::testing::HasSubstr("strategy.trim is 1"));
}

TEST(ClipWorkerNormTest, OfOneWorkerIsClipNorm) {
  const auto rows = made_rows(48);
  const auto run = [&](int world, std::vector<std::string> set) {
    set.push_back("strategy.kind=ALLREDUCE");
    return run_leader(job_with(wide_deep_job(12), set), world, rows);
  };
  // The sum of squares is made in another order.
  expect_near(run(1, {"optimizer.clip_worker_norm=0.05"}), run(1, {"optimizer.clip_norm=0.05"}), 1e-6);
  EXPECT_NE(run(2, {"optimizer.clip_worker_norm=0.05"}).losses.back(),
            run(2, {"optimizer.clip_norm=0.05"}).losses.back())
      << "each worker's own is cut, not the mean";
}

}  // namespace
}  // namespace braid::worker
