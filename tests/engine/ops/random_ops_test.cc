// Random ops: what their streams depend on, and the moments of what they draw.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

struct Draw {
  std::string op = "RandomUniform";
  std::vector<Tensor> inputs = {axes({100000})};
  AttrMap attrs = {};
  StepParams params = {};
};

std::vector<double> draw(const Draw& d) {
  CaseGraph g = make_case_graph(OpRegistry::global().require(d.op),
                                {.label = d.op, .inputs = d.inputs, .attrs = d.attrs});
  g.execution.params = d.params;
  return to_doubles(evaluate(g.graph, g.execution, g.outputs())[0]);
}

double mean(const std::vector<double>& v) {
  return std::reduce(v.begin(), v.end()) / static_cast<double>(v.size());
}
double variance(const std::vector<double>& v) {
  const double m = mean(v);
  double sum = 0;
  for (double x : v) sum += (x - m) * (x - m);
  return sum / static_cast<double>(v.size());
}

TEST(RandomOpsTest, StreamsDependOnSeedStepAndAttributes) {
  const auto base = draw({});
  EXPECT_EQ(draw({}), base);
  EXPECT_NE(draw({.params = {.seed = 1}}), base);
  EXPECT_NE(draw({.params = {.step = 1}}), base);
  EXPECT_NE(draw({.attrs = {{"seed", 1}}}), base);
  EXPECT_NE(draw({.attrs = {{"seed2", 1}}}), draw({.attrs = {{"seed", 1}}}));
}

TEST(RandomOpsTest, HaveTheirDistributions) {
  const auto uniform = draw({});
  EXPECT_NEAR(mean(uniform), 0.5, 0.005);
  EXPECT_NEAR(variance(uniform), 1.0 / 12, 0.002);
  EXPECT_TRUE(std::ranges::all_of(uniform, [](double x) { return x >= 0 && x < 1; }));

  const auto normal = draw({.op = "RandomStandardNormal"});
  EXPECT_NEAR(mean(normal), 0, 0.02);
  EXPECT_NEAR(variance(normal), 1, 0.02);

  const auto truncated = draw({.op = "TruncatedNormal"});
  EXPECT_TRUE(std::ranges::all_of(truncated, [](double x) { return std::abs(x) < 2; }));
  EXPECT_NEAR(variance(truncated), 0.774, 0.02);

  const auto dice = draw({.op = "RandomUniformInt", .inputs = {axes({60000}), i32({}, {1}), i32({}, {7})}});
  for (int face = 1; face <= 6; ++face)
    EXPECT_NEAR(static_cast<double>(std::ranges::count(dice, face)), 10000, 400) << face;
}

TEST(RandomShuffleTest, IsAPermutationOfRowsThatTheSeedDecides) {
  Tensor x(DType::Int32, {50, 2});
  for (std::size_t i = 0; i < 100; ++i) x.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  const auto shuffled = [&](std::int64_t seed) {
    return to_doubles(run_op("RandomShuffle", {x}, {{"seed", seed}})[0]);
  };
  const std::vector<double> y = shuffled(1);
  EXPECT_EQ(y, shuffled(1));
  EXPECT_NE(y, shuffled(2));
  EXPECT_NE(y, to_doubles(x));
  std::vector<double> firsts;
  for (std::size_t row = 0; row < 50; ++row) {
    EXPECT_EQ(y[2 * row + 1], y[2 * row] + 1);
    firsts.push_back(y[2 * row]);
  }
  std::sort(firsts.begin(), firsts.end());
  for (std::size_t row = 0; row < 50; ++row) EXPECT_EQ(firsts[row], 2.0 * static_cast<double>(row));
}

TEST(DropoutTest, KeepsTheMeanAndDropsTheRate) {
  const Tensor ones = run_op("OnesLike", {random_f64({300, 300}, 1)})[0];
  const auto y = to_doubles(run_op("braid.Dropout", {ones}, {{"rate", 0.25}})[0]);
  EXPECT_NEAR(mean(y), 1, 0.01);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(y, 0.0)) / static_cast<double>(y.size()), 0.25, 0.01);
  EXPECT_TRUE(std::ranges::all_of(y, [](double v) { return v == 0 || v == 1 / 0.75; }));
}

}  // namespace
}  // namespace braid::testing
