// Reductions against sums taken one element at a time, and their rules for nothing, NaN and long sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNan;

template <class T>
std::vector<T> elements_of(const Tensor& t) {
  return {t.data<T>().begin(), t.data<T>().end()};
}

/// Sums by walking all elements with their indices.
std::vector<double> naive_sum(const Tensor& x, const std::vector<int>& reduced) {
  const Shape& shape = x.shape();
  std::map<std::vector<std::int64_t>, double> sums;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    std::vector<std::int64_t> kept;
    std::int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; rest /= shape[axis], --axis)
      if (std::find(reduced.begin(), reduced.end(), axis) == reduced.end())
        kept.insert(kept.begin(), rest % shape[axis]);
    sums[kept] += x.data<double>()[static_cast<std::size_t>(i)];
  }
  std::vector<double> result;
  for (const auto& [index, sum] : sums) result.push_back(sum);
  return result;
}

TEST(ReduceOps, SumEqualsTheNaiveSumForEverySetOfAxes) {
  for (const Shape& shape : {Shape{3, 4, 5, 2}, Shape{2, 1, 3, 70}, Shape{1, 260, 1, 5}}) {
    const Tensor x = random_f64(shape, 1);
    for (int mask = 0; mask < 16; ++mask) {
      std::vector<int> reduced;
      for (int axis = 0; axis < 4; ++axis)
        if (mask & (1 << axis)) reduced.push_back(axis);
      const Tensor axes_value =
          Tensor::from<std::int32_t>({static_cast<std::int64_t>(reduced.size())}, reduced);
      const auto sum = elements_of<double>(run_op("Sum", {x, axes_value})[0]);
      const auto expected = naive_sum(x, reduced);
      ASSERT_EQ(sum.size(), expected.size());
      for (std::size_t i = 0; i < sum.size(); ++i)
        EXPECT_NEAR(sum[i], expected[i], 1e-11) << "axes mask " << mask;
    }
  }
}

TEST(ReduceOps, NothingGivesTheNeutralElement) {
  const Tensor none(DType::Float32, {0, 2});
  const float inf = std::numeric_limits<float>::infinity();
  const auto reduce = [&](const char* op) { return elements_of<float>(run_op(op, {none, axes({0})})[0]); };
  EXPECT_THAT(reduce("Sum"), ElementsAre(0, 0));
  EXPECT_THAT(reduce("Prod"), ElementsAre(1, 1));
  EXPECT_THAT(reduce("Max"), ElementsAre(-inf, -inf));
  EXPECT_THAT(reduce("Min"), ElementsAre(inf, inf));
  EXPECT_THAT(reduce("Mean"), ElementsAre(IsNan(), IsNan()));
  EXPECT_THAT(elements_of<bool>(run_op("All", {bools({0}, {}), axes({0})})[0]), ElementsAre(true));
  EXPECT_THAT(elements_of<bool>(run_op("Any", {bools({0}, {}), axes({0})})[0]), ElementsAre(false));
}

TEST(ReduceOps, NanWinsWhereverItStands) {
  for (std::int64_t n : {3, 40, 500, 100000})
    for (std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
      Tensor x = converted(random_f64({n}, 1), DType::Float32);
      x.data<float>()[static_cast<std::size_t>(at)] = std::nanf("");
      for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"})
        EXPECT_THAT(elements_of<float>(run_op(op, {x, axes({0})})[0]), ElementsAre(IsNan()))
            << op << " of " << n;
    }
}

TEST(ReduceOps, ArgMaxTakesANanOnlyWhereThereIsNothingElse) {
  const float nan = std::nanf("");
  for (std::int64_t n : {2, 40, 500}) {
    Tensor x = Tensor::zeros(DType::Float32, {n});
    std::fill(x.data<float>().begin(), x.data<float>().end(), nan);
    for (const char* op : {"ArgMax", "ArgMin"}) {
      EXPECT_THAT(elements_of<std::int64_t>(run_op(op, {x, i32({}, {0})})[0]), ElementsAre(0));
      for (const std::int64_t at : {std::int64_t{0}, n - 1}) {
        Tensor one = x.clone();
        one.data<float>()[static_cast<std::size_t>(at)] = 3;
        EXPECT_THAT(elements_of<std::int64_t>(run_op(op, {one, i32({}, {0})})[0]), ElementsAre(at));
        EXPECT_THAT(elements_of<std::int64_t>(run_op(op, {one.reshaped({n, 1}), i32({}, {0})})[0]),
                    ElementsAre(at));
      }
    }
  }
}

TEST(ReduceOps, LongFloatSumsStayCloseToTheExactOnes) {
  Tensor x(DType::Float32, {4000000});
  std::fill(x.data<float>().begin(), x.data<float>().end(), 0.1F);
  const double exact = 4000000 * static_cast<double>(0.1F);
  const double sum = elements_of<float>(run_op("Sum", {x, axes({0})})[0])[0];
  EXPECT_NEAR(sum / exact, 1, 1e-5);  // one running sum would be off by more than 1e-2
  const double columns = elements_of<float>(run_op("Sum", {x.reshaped({1000000, 4}), axes({0})})[0])[0];
  EXPECT_NEAR(columns / (exact / 4), 1, 1e-5);
}

TEST(ReduceOps, ArgMaxTakesTheFirstOfEqualOnes) {
  EXPECT_THAT(elements_of<std::int64_t>(run_op("ArgMax", {f32({2, 3}, {1, 3, 3, 2, 2, 2}), i32({}, {1})})[0]),
              ElementsAre(1, 0));
  EXPECT_THAT(elements_of<std::int64_t>(run_op("ArgMin", {f32({2, 3}, {1, 3, 3, 2, 3, 2}), i32({}, {0})})[0]),
              ElementsAre(0, 0, 1));
  Tensor x = Tensor::zeros(DType::Float32, {1, 1000});
  x.data<float>()[700] = x.data<float>()[300] = 1;
  EXPECT_THAT(elements_of<std::int64_t>(run_op("ArgMax", {x, i32({}, {1})})[0]), ElementsAre(300));
}

TEST(ReduceOps, AxesOutOfRangeAreRefusedWithTheirNumber) {
  EXPECT_EQ(refusal("Sum", {f32({2}, {1, 2}), axes({1})}),
            "[Sum] node 'op': axis 1 is out of range for rank 1");
}

TEST(ReduceOps, MaxSharesItsGradientAmongEqualElements) {
  // Built by the rule: two of three elements are the maximum, so each gets half of dy.
  const Tensor x = f32({3}, {2, 5, 5});
  const Tensor mask = run_op("Cast", {run_op("Equal", {x, f32({}, {5})})[0]}, {{"DstT", DType::Float32}})[0];
  const Tensor hits = run_op("Sum", {mask, axes({0})})[0];
  const Tensor spread =
      run_op("braid.BroadcastReduced", {run_op("RealDiv", {f32({}, {3}), hits})[0], x, axes({0})})[0];
  EXPECT_THAT(elements_of<float>(run_op("Mul", {mask, spread})[0]), ElementsAre(0, 1.5F, 1.5F));
}

TEST(BoundTest, CountsElementsBelowOrNotAbove) {
  const Tensor sorted = i32({2, 3}, {1, 2, 2, -1, 0, 4}), x = i32({2, 3}, {2, 0, 3, 0, 4, -2});
  EXPECT_EQ(tensor_to_int64s(run_op("LowerBound", {sorted, x})[0]),
            (std::vector<std::int64_t>{1, 0, 3, 1, 2, 0}));
  EXPECT_EQ(tensor_to_int64s(run_op("UpperBound", {sorted, x})[0]),
            (std::vector<std::int64_t>{3, 0, 3, 2, 3, 0}));
}

}  // namespace
}  // namespace braid::testing
