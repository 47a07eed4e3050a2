// The ops that clip gradients by their global norm, against formulas in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

double rows_loss(const Tensor& indices, const Tensor& rows, std::int64_t bound) {
  return values("braid.RowsL2Loss", {indices, rows}, {{"rows", bound}})[0];
}

TEST(RowsL2LossTest, RowsOfEqualIndicesAreSummedFirst) {
  EXPECT_EQ(rows_loss(i64({4}, {2, 0, 2, 1}), f32({4, 2}, {1, 2, 3, 4, -1, 5, 0.5F, 0.25F}), 3),
            (0.0 + 49 + 9 + 16 + 0.25 + 0.0625) / 2);
  EXPECT_EQ(rows_loss(axes({3, 3}), f32({2}, {1, -1}), 5), 0);
  EXPECT_EQ(rows_loss(i64({0}, {}), f32({0, 3}, {}), 5), 0);
  // More columns than are summed at once.
  constexpr std::int64_t kRows = 90, kWidth = 1100;
  const Tensor indices = random_i64({kRows}, 1, 0, 7);
  const Tensor rows = converted(random_f64({kRows, kWidth}, 2), DType::Float32);
  std::map<std::int64_t, std::vector<double>> sums;
  for (std::int64_t k = 0; k < kRows; ++k) {
    std::vector<double>& sum = sums[indices.data<std::int64_t>()[static_cast<std::size_t>(k)]];
    sum.resize(kWidth);
    for (std::int64_t i = 0; i < kWidth; ++i)
      sum[static_cast<std::size_t>(i)] +=
          static_cast<double>(rows.data<float>()[static_cast<std::size_t>(k * kWidth + i)]);
  }
  double expected = 0;
  for (const auto& [row, sum] : sums)
    for (const double x : sum) expected += x * x / 2;
  EXPECT_NEAR(rows_loss(indices, rows, 7), expected, 1e-5 * expected);
}

TEST(RowsL2LossTest, OfManyTablesIsTheSumOverThem) {
  const Tensor first = i64({4}, {2, 0, 2, 1}), second = i64({3}, {1, 1, 0});
  const Tensor x = f32({4, 2}, {1, 2, 3, 4, -1, 5, 0.5F, 0.25F}), y = f32({3, 1}, {3, 4, 5});
  const std::vector<std::int64_t> rows{3, 2};
  const Tensor entries = run_op("braid.GroupRows", {first, second}, {{"rows", rows}})[0];
  EXPECT_EQ(values("braid.RowsL2LossMany", {x, y, entries}, {{"rows", rows}})[0],
            rows_loss(first, x, 3) + rows_loss(second, y, 2));
  EXPECT_EQ(values("braid.L2LossMany", {x, y}, {})[0],
            (1 + 4 + 9 + 16 + 1 + 25 + 0.25 + 0.0625 + 9 + 16 + 25) / 2);
  EXPECT_THAT(refusal("braid.RowsL2LossMany", {x, entries}, {{"rows", rows}}),
              HasSubstr("rows: expected those of 1 tables, got 2"));
  EXPECT_THAT(refusal("braid.RowsL2LossMany", {x, x, entries}, {{"rows", rows}}),
              HasSubstr("an entry for each row of values is needed"));
}

TEST(RowsL2LossTest, WhatDoesNotFitIsRefused) {
  const auto refused = [](const Tensor& indices, const Tensor& rows, std::int64_t bound) {
    return refusal("braid.RowsL2Loss", {indices, rows}, {{"rows", bound}});
  };
  EXPECT_THAT(refused(i64({2}, {0, 5}), f32({2, 1}, {1, 2}), 5), HasSubstr("5"));
  EXPECT_THAT(refused(i64({2}, {0, 1}), f32({3, 1}, {1, 2, 3}), 5),
              HasSubstr("there are 2 indices, but 3 rows of values"));
  EXPECT_THAT(refused(i64({1}, {0}), f32({}, {1}), 5), HasSubstr("a scalar has no rows"));
}

double scale_of(std::vector<Tensor> halves, double clip_norm, bool scaled = false, float grad_scale = 1) {
  const OpCase c{
      .label = "scale", .inputs = std::move(halves), .attrs = {{"clip_norm", clip_norm}, {"scaled", scaled}}};
  CaseGraph g = make_case_graph(OpRegistry::global().require("braid.ClipScale"), c);
  g.execution.params.grad_scale = grad_scale;
  return to_doubles(evaluate(g.graph, g.execution, g.outputs())[0])[0];
}

TEST(ClipScaleTest, OnlyNormsAboveTheLimitAreClipped) {
  const Tensor three = f32({}, {3}), five = f32({}, {5});  // a norm of 4
  EXPECT_EQ(scale_of({three, five}, 4), 1);
  EXPECT_EQ(scale_of({three, five}, 9), 1);
  EXPECT_EQ(scale_of({three, five}, 2), 0.5);
  EXPECT_EQ(scale_of({f32({}, {0})}, 2), 1);
  EXPECT_EQ(scale_of(std::vector<Tensor>(600, f32({}, {0.75F})), 3), 0.1F) << "a norm of 30";
}

// As tf.clip_by_global_norm: a scale of 0 would hide an infinite gradient among others that are fine.
TEST(ClipScaleTest, ANormThatIsNotFiniteShows) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_TRUE(std::isnan(scale_of({f32({}, {3}), f32({}, {bad})}, 2))) << bad;
}

TEST(ClipScaleTest, ANormOfScaledGradientsIsTakenWithoutTheirScale) {
  const Tensor eight = f32({}, {8});  // a norm of 4
  EXPECT_EQ(scale_of({eight}, 1, true, 0.5F), 0.5);
  EXPECT_EQ(scale_of({eight}, 1, true, 0.125F), 1);
  EXPECT_EQ(scale_of({eight}, 1, false, 0.125F), 0.25);
}

TEST(ClipScaleTest, ALimitIsAboveZero) {
  for (const double limit : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(refusal("braid.ClipScale", {f32({}, {1})}, {{"clip_norm", limit}}),
                HasSubstr("clip_norm must be above 0"));
}

}  // namespace
}  // namespace braid::testing
