// braid.RaggedAttention and its gradients: against their definition in float64 on random ragged shapes,
// against PyTorch (golden/make_attention.py), and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/engine/ops/op_runner.h"
#include "tests/engine/ops/ragged/naive_attention.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

AttrMap attrs_of(const NaiveAttention& a) {
  return {{"activation", a.softmax ? "softmax" : "silu"},
          {"causal", a.causal},
          {"window", a.window},
          {"context", a.context},
          {"max_length", a.max_length},
          {"scale", a.scale}};
}

Tensor vector_of(const std::vector<std::int64_t>& values) {
  return Tensor::from<std::int64_t>(Shape{std::ssize(values)}, values);
}

/// q, k, v, d_out of `values` tokens.
std::vector<Tensor> random_values(const NaiveAttention& a, std::int64_t values, std::uint64_t seed,
                                  DType dtype) {
  std::vector<Tensor> all;
  for (const std::int64_t width : {a.qk, a.qk, a.v, a.v})
    all.push_back(converted(random_f64({values, a.heads, width}, ++seed, -2, 2), dtype));
  return all;
}

struct Outcome {
  std::vector<Tensor> forward, backward;
};

Outcome run(const NaiveAttention& a, const std::vector<Tensor>& x, int pool_width = 1) {
  const auto of = [&](const char* op, const std::vector<Tensor>& inputs) {
    return run_case(OpRegistry::global().require(op),
                    {.label = "attention", .inputs = inputs, .attrs = attrs_of(a)}, pool_width);
  };
  std::vector<Tensor> lists{vector_of(a.offsets)};
  if (!a.targets.empty()) lists.push_back(vector_of(a.targets));
  std::vector<Tensor> inputs{x[0], x[1], x[2]};
  inputs.insert(inputs.end(), lists.begin(), lists.end());
  Outcome outcome;
  outcome.forward = of("braid.RaggedAttention", inputs);
  inputs.insert(inputs.begin() + 3, x[3]);
  if (a.softmax) inputs.insert(inputs.end(), {outcome.forward[0], outcome.forward[1]});
  outcome.backward = of("braid.RaggedAttentionGrad", inputs);
  return outcome;
}

/// The largest difference, relative to the largest number that is expected.
double difference(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<double> got = to_doubles(actual);
  EXPECT_EQ(got.size(), expected.size());
  double most = 1e-3, worst = 0;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    most = std::max(most, std::abs(expected[i]));
    worst = std::max(worst, std::isfinite(got[i]) ? std::abs(got[i] - expected[i]) : INFINITY);
  }
  return worst / most;
}

void expect_as_naive(const NaiveAttention& a, const std::vector<Tensor>& x, double tolerance) {
  const NaiveAttention::Result expected =
      a.run(to_doubles(x[0]), to_doubles(x[1]), to_doubles(x[2]), to_doubles(x[3]));
  const Outcome outcome = run(a, x);
  EXPECT_LT(difference(outcome.forward[0], expected.out), tolerance) << "output";
  EXPECT_LT(difference(outcome.backward[0], expected.dq), tolerance) << "dq";
  EXPECT_LT(difference(outcome.backward[1], expected.dk), tolerance) << "dk";
  EXPECT_LT(difference(outcome.backward[2], expected.dv), tolerance) << "dv";
}

/// Rows from none to `longest` values, with an empty one and one of a single value often among them.
NaiveAttention random_attention(std::mt19937_64& random, std::int64_t longest) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  NaiveAttention a;
  a.heads = 1 + below(4);
  a.qk = 1 + below(20);
  a.v = 1 + below(20);
  a.softmax = below(2) == 0;
  a.causal = below(3) > 0;
  a.window = below(2) == 0 ? 0 : 1 + below(longest);
  a.context = below(2) == 0 ? 0 : 1 + below(6);
  a.scale = 0.1 + 0.1 * static_cast<double>(below(10));
  a.offsets = {0};
  const bool targets = below(2) == 0;
  const std::int64_t batch = below(6);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t kind = below(5), length = kind == 0 ? 0 : kind == 1 ? 1 : below(longest + 1);
    a.offsets.push_back(a.offsets.back() + length);
    if (targets) a.targets.push_back(below(std::min<std::int64_t>(length, 5) + 1));
  }
  if (below(3) == 0) a.max_length = longest + below(10);
  if (targets && batch == 0) a.targets.clear();
  return a;
}

TEST(RaggedAttentionTest, IsItsDefinitionOnRandomShapes) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 360; ++i) {
    // Most rows within a tile, some of several.
    const NaiveAttention a = random_attention(random, i % 6 == 0 ? 230 : 40);
    SCOPED_TRACE("shape " + std::to_string(i));
    const std::int64_t values = a.offsets.back() + static_cast<std::int64_t>(random() % 4);
    const bool wide = i % 2 == 0;
    expect_as_naive(a, random_values(a, values, random(), wide ? DType::Float64 : DType::Float32),
                    wide ? 1e-12 : 1e-5);
    if (HasFailure()) return;
  }
}

TEST(RaggedAttentionTest, TakesThousandsOfValues) {
  for (const bool softmax : {false, true}) {
    NaiveAttention a{.heads = 1, .qk = 4, .v = 4, .offsets = {0, 4095, 4095, 4096, 4400}, .softmax = softmax};
    if (softmax) a.offsets = {0, 1500, 1500, 1501, 1700};
    a.targets = {1, 0, 1, 3};
    a.scale = 0.3;
    expect_as_naive(a, random_values(a, a.offsets.back() + 3, 5, DType::Float32), 2e-5);
  }
}

TEST(RaggedAttentionTest, ValuesOfNoRowAreZerosAndAreNotLookedAt) {
  for (const bool softmax : {false, true}) {
    NaiveAttention a{.heads = 2, .qk = 3, .v = 3, .offsets = {0, 2, 5}, .softmax = softmax};
    std::vector<Tensor> x = random_values(a, 7, 3, DType::Float32);
    for (Tensor& each : x)
      for (std::size_t i = 5 * 6; i < each.data<float>().size(); ++i) each.data<float>()[i] = NAN;
    Outcome outcome = run(a, x);
    outcome.backward.push_back(outcome.forward[0]);
    for (const Tensor& each : outcome.backward)
      for (std::size_t i = 0; i < each.data<float>().size(); ++i) {
        ASSERT_TRUE(std::isfinite(each.data<float>()[i]));
        if (i >= 5 * 6) {
          EXPECT_EQ(each.data<float>()[i], 0);
        }
      }
  }
}

TEST(RaggedAttentionTest, RowsDoNotDependOnEachOther) {
  NaiveAttention both{.heads = 2, .qk = 5, .v = 5, .offsets = {0, 70, 120}, .max_length = 70};
  const std::vector<Tensor> x = random_values(both, 120, 9, DType::Float32);
  NaiveAttention first = both;
  first.offsets = {0, 70};
  const Outcome all = run(both, x, 3), one = run(first, x);
  for (std::size_t i = 0; i < 70 * 10; ++i)
    EXPECT_EQ(all.backward[1].data<float>()[i], one.backward[1].data<float>()[i]);
}

TEST(RaggedAttentionTest, LargeScoresStayFinite) {
  for (const bool softmax : {false, true}) {
    NaiveAttention a{.heads = 1, .qk = 4, .v = 4, .offsets = {0, 9}, .softmax = softmax};
    a.scale = 200;
    const Outcome outcome = run(a, random_values(a, 9, 21, DType::Float32));
    for (const Tensor& each :
         {outcome.forward[0], outcome.backward[0], outcome.backward[1], outcome.backward[2]})
      for (const float value : each.data<float>()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(RaggedAttentionTest, IsAsPyTorchHasIt) {
  std::ifstream file(std::filesystem::path(BRAID_SOURCE_DIR) /
                     "tests/engine/ops/ragged/golden/attention.json");
  const auto recorded = nlohmann::json::parse(file);
  ASSERT_EQ(recorded["cases"].size(), 5U);
  for (const auto& each : recorded["cases"]) {
    SCOPED_TRACE(each["name"].get<std::string>());
    NaiveAttention a{.heads = each["heads"],
                     .qk = each["qk_width"],
                     .v = each["v_width"],
                     .offsets = each["offsets"].get<std::vector<std::int64_t>>(),
                     .targets = each["targets"].get<std::vector<std::int64_t>>(),
                     .softmax = each["softmax"],
                     .causal = each["causal"]};
    a.window = each["window"];
    a.context = each["context"];
    a.max_length = each["max_length"];
    a.scale = each["scale"];
    std::vector<Tensor> x;
    for (const auto& [name, width] : {std::pair{"q", a.qk}, {"k", a.qk}, {"v", a.v}, {"d_out", a.v}})
      x.push_back(
          Tensor::from<float>(Shape{a.offsets.back(), a.heads, width}, each[name].get<std::vector<float>>()));
    const Outcome outcome = run(a, x);
    EXPECT_LT(difference(outcome.forward[0], each["out"].get<std::vector<double>>()), 1e-5);
    EXPECT_LT(difference(outcome.backward[0], each["dq"].get<std::vector<double>>()), 1e-5);
    EXPECT_LT(difference(outcome.backward[1], each["dk"].get<std::vector<double>>()), 1e-5);
    EXPECT_LT(difference(outcome.backward[2], each["dv"].get<std::vector<double>>()), 1e-5);
  }
}

TEST(RaggedAttentionTest, RefusesWhatIsNoAttention) {
  const Tensor q = random_f64({4, 2, 3}, 1), v = random_f64({4, 2, 5}, 2), offsets = i64({3}, {0, 1, 4});
  const auto refused = [&](std::vector<Tensor> inputs, AttrMap attrs = {}) {
    return refusal("braid.RaggedAttention", std::move(inputs), std::move(attrs));
  };
  EXPECT_THAT(refused({q, q, v, i64({3}, {0, 3, 2})}),
              HasSubstr("offsets[2] = 2 falls, or is above the 4 values"));
  EXPECT_THAT(refused({q, q, v, i64({3}, {0, 3, 5})}), HasSubstr("offsets[2] = 5"));
  EXPECT_THAT(refused({q, q, v, i64({3}, {1, 3, 4})}), HasSubstr("offsets begin with 1"));
  EXPECT_THAT(refused({q, q, v, offsets, i64({2}, {2, 0})}), HasSubstr("targets[0] = 2 is not in [0, 1]"));
  EXPECT_THAT(refused({q, q, v, offsets, i64({2}, {0, -1})}), HasSubstr("targets[1] = -1"));
  EXPECT_THAT(refused({q, q, v, offsets, i64({3}, {0, 0, 0})}), HasSubstr("rows of offsets and of targets"));
  EXPECT_THAT(refused({q, q, v, offsets}, {{"max_length", 2}}),
              HasSubstr("row 1 has 3 values, more than max_length 2"));
  EXPECT_THAT(refused({q, q, v, offsets}, {{"window", -1}}), HasSubstr("window must not be negative"));
  EXPECT_THAT(refused({q, q, v, offsets}, {{"activation", "relu"}}),
              HasSubstr("neither silu nor softmax: 'relu'"));
  EXPECT_THAT(refused({q, v, v, offsets}), HasSubstr("widths of heads must be equal, got 3 and 5"));
  EXPECT_THAT(refused({q, q, random_f64({4, 1, 5}, 2), offsets}), HasSubstr("numbers of heads"));
  EXPECT_THAT(refused({q, q, random_f64({3, 2, 5}, 2), offsets}), HasSubstr("numbers of values"));
  EXPECT_THAT(refused({q, q, random_f64({4, 10}, 2), offsets}), HasSubstr("rank"));
}

}  // namespace
}  // namespace braid::testing
