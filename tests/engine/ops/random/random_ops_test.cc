// Random ops: what their streams depend on, and the moments of what they draw.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

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

// Values of TensorFlow 2.21: tf.raw_ops.<op>(shape=[10], seed=[7, -3]), of V2 with the key and counter that
// StatelessRandomGetKeyCounter gives for that seed.
void expect_first(const std::string& op, const std::vector<double>& expected, double tolerance) {
  const auto drawn = draw({.op = op, .inputs = {axes({10}), i64({2}, {7, -3})}});
  ASSERT_EQ(drawn.size(), expected.size());
  for (std::size_t i = 0; i < drawn.size(); ++i)
    EXPECT_NEAR(drawn[i], expected[i], tolerance) << op << " " << i;
}

TEST(StatelessRandomTest, DrawsWhatTensorFlowDraws) {
  expect_first("StatelessRandomUniform",
               {0.434642196, 0.0652759075, 0.747612953, 0.148764133, 0.58978641, 0.31938231, 0.0533525944,
                0.533490419, 0.644101143, 0.189555407},
               1e-9);
  expect_first("StatelessRandomNormal",
               {0.514737666, 1.18385363, 0.61355257, 0.453092754, 0.931503654, -0.433924586, -0.50570935,
                -2.36768293, 0.871140122, 0.347726792},
               1e-6);
  expect_first("StatelessTruncatedNormal",
               {0.514737666, 1.18385363, 0.61355257, 0.453092754, 1.0124135, -0.0177895166, 0.00640073931,
                -0.431887627, -1.10400867, -0.852179527},
               1e-6);
}

TEST(StatelessRandomTest, KeyAndCounterAreThoseOfTensorFlow) {
  for (const Tensor& seed : {i64({2}, {7, -3}), i32({2}, {7, -3})}) {
    CaseGraph g = make_case_graph(OpRegistry::global().require("StatelessRandomGetKeyCounter"),
                                  {.label = "seed", .inputs = {seed}});
    const std::vector<Tensor> outputs = evaluate(g.graph, g.execution, g.outputs());
    EXPECT_EQ(outputs[0].data<std::uint64_t>()[0], 0xb9f4bbecb565c296U);
    EXPECT_EQ(outputs[1].data<std::uint64_t>()[0], 0U);
    EXPECT_EQ(outputs[1].data<std::uint64_t>()[1], 0x277b9bf3d34bed1dU);
  }
}

TEST(StatelessRandomTest, StepAndSeedOfTheJobDoNotMatter) {
  const Draw one{.op = "StatelessRandomUniform", .inputs = {axes({100}), i64({2}, {1, 2})}};
  Draw other = one;
  other.params = {.step = 3, .seed = 9};
  EXPECT_EQ(draw(one), draw(other));
  other.inputs[1] = i64({2}, {1, 3});
  EXPECT_NE(draw(one), draw(other));
}

class CandidateSamplerTest : public ::testing::TestWithParam<const char*> {
 protected:
  /// Samples, and what is expected of classes 0, 1, 2, ...
  std::vector<std::vector<double>> sampled(std::int64_t range, std::int64_t count, bool unique,
                                           std::uint64_t step) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(range));
    std::iota(all.begin(), all.end(), 0);
    CaseGraph g = make_case_graph(
        OpRegistry::global().require(GetParam()),
        {.label = "sampled",
         .inputs = {Tensor::from<std::int64_t>(Shape{range, 1}, all)},
         .attrs = {{"num_true", 1}, {"num_sampled", count}, {"range_max", range}, {"unique", unique}}});
    g.execution.params.step = step;
    std::vector<std::vector<double>> outputs;
    for (const Tensor& output : evaluate(g.graph, g.execution, g.outputs()))
      outputs.push_back(to_doubles(output));
    return outputs;
  }
};

TEST_P(CandidateSamplerTest, DrawsAsOftenAsItExpects) {
  const auto outputs = sampled(10, 200000, false, 0);
  std::vector<double> counts(10);
  for (const double sample : outputs[0]) counts.at(static_cast<std::size_t>(sample)) += 1;
  for (std::size_t k = 0; k < counts.size(); ++k)
    EXPECT_NEAR(counts[k], outputs[1][k], 4 * std::sqrt(outputs[1][k])) << k;
  EXPECT_NEAR(std::reduce(outputs[1].begin(), outputs[1].end()), 200000, 1);
}

TEST_P(CandidateSamplerTest, UniqueSamplesAreDifferentAndExpectedAsOftenAsTheyCome) {
  std::vector<double> counts(12), expected(12);
  constexpr int kSteps = 3000;
  for (int step = 0; step < kSteps; ++step) {
    const auto outputs = sampled(12, 6, true, static_cast<std::uint64_t>(step));
    const std::set<double> different(outputs[0].begin(), outputs[0].end());
    ASSERT_EQ(different.size(), 6U);
    for (const double sample : outputs[0]) counts.at(static_cast<std::size_t>(sample)) += 1.0 / kSteps;
    for (std::size_t k = 0; k < expected.size(); ++k) expected[k] += outputs[1][k] / kSteps;
  }
  for (std::size_t k = 0; k < counts.size(); ++k) EXPECT_NEAR(counts[k], expected[k], 0.06) << k;
}

TEST_P(CandidateSamplerTest, EachStepHasItsOwn) {
  EXPECT_EQ(sampled(1000, 20, true, 1), sampled(1000, 20, true, 1));
  EXPECT_NE(sampled(1000, 20, true, 1)[0], sampled(1000, 20, true, 2)[0]);
}

INSTANTIATE_TEST_SUITE_P(Ops, CandidateSamplerTest,
                         ::testing::Values("UniformCandidateSampler", "LogUniformCandidateSampler"));

}  // namespace
}  // namespace braid::testing
