// Values of softmax, its losses, the sigmoid loss and InTopKV2 worked out by hand or by the definition in
// float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(SoftmaxTest, RowsSumToOneAndKeepTheirOrder) {
  const Tensor x = converted(random_f64({50, 37}, 1, -30, 30), DType::Float32);
  const auto y = to_doubles(run_op("Softmax", {x})[0]);
  const auto logits = to_doubles(x);
  for (std::size_t r = 0; r < 50; ++r) {
    EXPECT_NEAR(std::accumulate(y.begin() + r * 37, y.begin() + (r + 1) * 37, 0.0), 1, 1e-6);
    for (std::size_t j = 1; j < 37; ++j)
      EXPECT_EQ(logits[r * 37 + j] > logits[r * 37], y[r * 37 + j] > y[r * 37])
          << "row " << r << " class " << j;
  }
}

TEST(SoftmaxTest, HugeLogitsNeitherOverflowNorVanish) {
  const Tensor x = f32({2, 2}, {10000, 10000, -10000, -9999});
  EXPECT_THAT(to_doubles(run_op("Softmax", {x})[0]),
              ElementsAre(0.5, 0.5, DoubleNear(0.268941, 1e-6), DoubleNear(0.731059, 1e-6)));
  EXPECT_THAT(to_doubles(run_op("LogSoftmax", {f32({1, 2}, {0, -1000})})[0]), ElementsAre(0, -1000));
}

TEST(CrossEntropyTest, DenseAndSparseAgreeOnOneHotLabels) {
  const Tensor x = random_f64({3, 4}, 1, -5, 5);
  const Tensor labels = f64({3, 4}, {0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0});
  const auto dense = run_op("SoftmaxCrossEntropyWithLogits", {x, labels});
  const auto sparse = run_op("SparseSoftmaxCrossEntropyWithLogits", {x, i32({3}, {1, 3, 0})});
  for (int output : {0, 1}) {
    const auto d = to_doubles(dense[static_cast<std::size_t>(output)]);
    const auto s = to_doubles(sparse[static_cast<std::size_t>(output)]);
    for (std::size_t i = 0; i < d.size(); ++i) EXPECT_NEAR(d[i], s[i], 1e-12);
  }
}

TEST(CrossEntropyTest, UniformLogitsCostTheLogarithmOfTheClasses) {
  const auto outputs =
      run_op("SparseSoftmaxCrossEntropyWithLogits", {Tensor::zeros(DType::Float64, {1, 10}), i64({1}, {3})});
  EXPECT_NEAR(outputs[0].data<double>()[0], std::log(10.0), 1e-12);
  EXPECT_NEAR(outputs[1].data<double>()[3], 0.1 - 1, 1e-12);
  EXPECT_NEAR(outputs[1].data<double>()[4], 0.1, 1e-12);
}

TEST(CrossEntropyTest, LabelsOutsideTheClassesAreRefusedWithTheirRow) {
  for (std::int64_t label : {-1, 4})
    EXPECT_EQ(refusal("SparseSoftmaxCrossEntropyWithLogits", {random_f64({2, 4}, 1), i64({2}, {0, label})}),
              "[SparseSoftmaxCrossEntropyWithLogits] node 'op': label " + std::to_string(label) +
                  " of row 1 is outside [0, 4)");
}

TEST(SigmoidCrossEntropyTest, IsTheDefinitionWhereThatIsStableAndLinearFarOut) {
  const Tensor x = random_f64({100}, 1, -6, 6), z = random_f64({100}, 2, 0, 1);
  const auto y = to_doubles(run_op("braid.SigmoidCrossEntropy", {x, z})[0]);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double p = 1 / (1 + std::exp(-x.data<double>()[i])), label = z.data<double>()[i];
    EXPECT_NEAR(y[i], -label * std::log(p) - (1 - label) * std::log(1 - p), 1e-12);
  }
  EXPECT_THAT(to_doubles(run_op("braid.SigmoidCrossEntropy", {f32({2}, {-1000, 1000}), f32({2}, {1, 1})})[0]),
              ElementsAre(1000, 0));
}

TEST(BiasAddTest, ChannelsFirstAddsToAxisOne) {
  const Tensor x = Tensor::zeros(DType::Float32, {1, 2, 1, 3});
  EXPECT_THAT(to_doubles(run_op("BiasAdd", {x, f32({2}, {1, 2})}, {{"data_format", "NCHW"}})[0]),
              ElementsAre(1, 1, 1, 2, 2, 2));
  const Tensor g = f32({1, 2, 1, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(to_doubles(run_op("BiasAddGrad", {g}, {{"data_format", "NCHW"}})[0]), ElementsAre(6, 15));
}

TEST(InTopKTest, CountsStrictlyHigherPredictionsOnly) {
  const Tensor predictions = f32({4, 3}, {1, 3, 3, 1, 2, 3, NAN, 1, 2, 5, 1, 2});
  const auto top = [&](std::int32_t k) {
    return to_doubles(run_op("InTopKV2", {predictions, i32({4}, {2, 0, 1, 7}), i32({}, {k})})[0]);
  };
  EXPECT_THAT(top(1), ElementsAre(1, 0, 0, 0));  // a tie, too low, NaN in the row, no such class
  EXPECT_THAT(top(3), ElementsAre(1, 1, 0, 0));
}

}  // namespace
}  // namespace braid::testing
