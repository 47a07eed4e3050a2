// TensorFlow's optimizer ops against their definitions: formulas, duplicates, types of variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ops/optimizer/updates.h"

namespace braid::testing {
namespace {

/// One variable of one element and its slots before and after an update of TensorFlow's ops.
std::vector<float> one_update(const std::string& op, std::vector<float> state, std::vector<float> rest) {
  std::vector<Tensor> inputs;
  for (const float value : state) inputs.push_back(f32({1}, {value}));
  const auto variables = static_cast<int>(inputs.size());
  const bool gradient_first = op.find("Ftrl") != std::string::npos;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool is_gradient = i == (gradient_first ? 0 : rest.size() - 1);
    inputs.push_back(is_gradient ? f32({1}, {rest[i]}) : f32({}, {rest[i]}));
  }
  std::vector<float> after;
  for (const Tensor& t : update(op, std::move(inputs), variables, {}, {}))
    after.push_back(t.data<float>()[0]);
  return after;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6) << "value " << i;
}

TEST(AdaptiveOptimizers, FollowTheDocumentedFormulas) {
  const double w = 0.5, g = 0.3, lr = 0.1, rho = 0.9, mu = 0.8, eps = 1e-3;
  const double ms = 0.4 * rho + 0.1 * g * g, mom = mu * 0.2 + lr * g / std::sqrt(ms + eps);
  expect_near(one_update("ResourceApplyRMSProp", {0.5F, 0.4F, 0.2F}, {0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
              {w - mom, ms, mom});
  const double mg = 0.1 * rho + 0.1 * g, centred = mu * 0.2 + lr * g / std::sqrt(ms - mg * mg + eps);
  expect_near(
      one_update("ResourceApplyCenteredRMSProp", {0.5F, 0.1F, 0.4F, 0.2F}, {0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
      {w - centred, mg, ms, centred});
  const double a = rho * 0.4 + 0.1 * g * g, step = std::sqrt(0.2 + eps) / std::sqrt(a + eps) * g;
  expect_near(one_update("ResourceApplyAdadelta", {0.5F, 0.4F, 0.2F}, {0.1F, 0.9F, 1e-3F, 0.3F}),
              {w - lr * step, a, rho * 0.2 + 0.1 * step * step});
}

TEST(AdaptiveOptimizers, VariantsOfAdamAndSignsFollowTheDocumentedFormulas) {
  const double w = 0.5, g = 0.3, lr = 0.1, b1 = 0.9, b2 = 0.8, p1 = 0.81, p2 = 0.64, eps = 1e-3;
  const double m = b1 * 0.4 + (1 - b1) * g;
  expect_near(one_update("ResourceApplyAdaMax", {0.5F, 0.4F, 0.2F}, {0.81F, 0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
              {w - lr / (1 - p1) * m / (g + eps), m, g});
  const double v = b2 * 0.2 + (1 - b2) * g * g, rate = lr * std::sqrt(1 - p2) / (1 - p1);
  for (const double largest : {0.01, 0.7})
    expect_near(one_update("ResourceApplyAdamWithAmsgrad", {0.5F, 0.4F, 0.2F, static_cast<float>(largest)},
                           {0.81F, 0.64F, 0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
                {w - rate * m / (std::sqrt(std::max(v, largest)) + eps), m, v, std::max(v, largest)});
  for (const double sign : {1.0, -1.0}) {
    const auto slot = static_cast<float>(sign * 0.4);
    const double mean = b1 * sign * 0.4 + (1 - b1) * g;
    expect_near(one_update("ResourceApplyAddSign", {0.5F, slot}, {0.1F, 2, 0.5F, 0.9F, 0.3F}),
                {w - lr * (2 + 0.5 * sign) * g, mean});
    expect_near(one_update("ResourceApplyPowerSign", {0.5F, slot}, {0.1F, 2, 0.5F, 0.9F, 0.3F}),
                {w - lr * std::exp(2 * 0.5 * sign) * g, mean});
  }
}

TEST(AdaptiveOptimizers, ProximalStepsShrinkTowardsZero) {
  const double w = -0.5, g = 0.3, lr = 0.1, l1 = 0.2, l2 = 0.4;
  const double next = w - lr * g;
  expect_near(one_update("ResourceApplyProximalGradientDescent", {-0.5F}, {0.1F, 0.2F, 0.4F, 0.3F}),
              {-(std::abs(next) - lr * l1) / (1 + lr * l2)});
  expect_near(one_update("ResourceApplyProximalGradientDescent", {-0.5F}, {0.1F, 0, 0.4F, 0.3F}),
              {next / (1 + lr * l2)});
  expect_near(one_update("ResourceApplyProximalGradientDescent", {-0.5F}, {0.1F, 9, 0.4F, 0.3F}), {0});
  const double a = 0.4 + g * g, rate = lr / std::sqrt(a);
  expect_near(one_update("ResourceApplyProximalAdagrad", {-0.5F, 0.4F}, {0.1F, 0.2F, 0.4F, 0.3F}),
              {-(std::abs(w - rate * g) - rate * l1) / (1 + rate * l2), a});
}

TEST(AdaptiveOptimizers, FtrlShrinksSmallWeightsToZero) {
  const double w = 0.5, g = 0.3, lr = 0.1, l1 = 0.01, l2 = 0.02, shrinkage = 0.05;
  const double n = 0.4 + g * g, sigma = (std::sqrt(n) - std::sqrt(0.4)) / lr;
  const double z = 0.2 + g - sigma * w;
  expect_near(one_update("ResourceApplyFtrl", {0.5F, 0.4F, 0.2F}, {0.3F, 0.1F, 0.01F, 0.02F, -0.5F}),
              {(std::copysign(l1, z) - z) / (std::sqrt(n) / lr + 2 * l2), n, z});
  expect_near(one_update("ResourceApplyFtrl", {0.5F, 0.4F, 0.2F}, {0.3F, 0.1F, 9.0F, 0.02F, -0.5F}),
              {0, n, z});
  const double z2 = z + 2 * shrinkage * w;
  expect_near(one_update("ResourceApplyFtrlV2", {0.5F, 0.4F, 0.2F}, {0.3F, 0.1F, 0.01F, 0.02F, 0.05F, -0.5F}),
              {(std::copysign(l1, z2) - z2) / (std::sqrt(n) / lr + 2 * l2), n, z2});
}

TEST(AdaptiveOptimizers, SparseFormsUpdateARowForEachOccurrence) {
  const Tensor w = f32({3, 1}, {1, 2, 3}), a = f32({3, 1}, {1, 1, 1}), z = f32({3, 1}, {0, 0, 0});
  const auto row = [](float value) { return f32({}, {value}); };
  const auto after = update(
      "ResourceSparseApplyFtrl",
      {w, a, z, f32({2, 1}, {0.5F, 0.25F}), axes({2, 2}), row(0.1F), row(0), row(0), row(-0.5F)}, 3, {}, {});
  const auto once = one_update("ResourceApplyFtrl", {3, 1, 0}, {0.5F, 0.1F, 0, 0, -0.5F});
  const auto twice = one_update("ResourceApplyFtrl", once, {0.25F, 0.1F, 0, 0, -0.5F});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(after[i].data<float>()[2], twice[i]);
  EXPECT_EQ(after[0].data<float>()[0], 1);
}

TEST(ResourceApplyTest, SparseAdagradUpdatesOncePerOccurrence) {
  const Tensor w = f32({2, 1}, {1, 1}), a = f32({2, 1}, {0, 0});
  const auto after = update("ResourceSparseApplyAdagrad",
                            {w, a, f32({}, {1}), f32({2, 1}, {3, 4}), axes({1, 1})}, 2, {}, {});
  const float first = 1 - 3 / std::sqrt(9.0F);
  expect_same(after[0], f32({2, 1}, {1, first - 4 / std::sqrt(25.0F)}));
  expect_same(after[1], f32({2, 1}, {0, 25}));
}

TEST(ResourceApplyTest, AdamTakesItsPowersFromItsInputs) {
  const Tensor zero = f32({1}, {0});
  // beta1^3 and beta2^3 for betas 0.5 and 0.25.
  const auto after =
      update("ResourceApplyAdam",
             {f32({1}, {1}), zero, zero, f32({}, {0.125F}), f32({}, {0.015625F}), f32({}, {0.1F}),
              f32({}, {0.5F}), f32({}, {0.25F}), f32({}, {1e-3F}), f32({1}, {2})},
             3, {}, {});
  const double m = 0.5 * 2, v = 0.75 * 4, rate = 0.1 * std::sqrt(1 - 0.015625) / (1 - 0.125);
  EXPECT_FLOAT_EQ(after[0].data<float>()[0], static_cast<float>(1 - rate * m / (std::sqrt(v) + 1e-3)));
  EXPECT_FLOAT_EQ(after[1].data<float>()[0], 1);
  EXPECT_FLOAT_EQ(after[2].data<float>()[0], 3);
}

TEST(ResourceApplyTest, NesterovAdamLooksOneGradientAhead) {
  const auto scalar = [](float value) { return f32({}, {value}); };
  const auto after = update("ResourceApplyAdam",
                            {f32({1}, {1}), f32({1}, {0.5F}), f32({1}, {2}), scalar(0.125F), scalar(0.25F),
                             scalar(0.1F), scalar(0.5F), scalar(0.25F), scalar(1e-3F), f32({1}, {3})},
                            3, {{"use_nesterov", true}}, {});
  const double m = 0.5 * 0.5 + 0.5 * 3, v = 0.25 * 2 + 0.75 * 9, rate = 0.1 * std::sqrt(0.75) / 0.875;
  EXPECT_FLOAT_EQ(after[0].data<float>()[0],
                  static_cast<float>(1 - rate * (0.5 * m + 0.5 * 3) / (std::sqrt(v) + 1e-3)));
}

/// Every optimizer op, dense and sparse, on variables of `stored` against the same update in float32.
void expect_updates_as_of_float32(DType stored, double tolerance) {
  const DType computed = stored == DType::Float64 ? DType::Float64 : DType::Float32;
  const auto cast = [](const Tensor& t, DType to) {
    return t.dtype() == to || !is_floating(t.dtype()) ? t : run_op("Cast", {t}, {{"DstT", to}})[0];
  };
  const OpCaseTable& table = all_op_cases();
  int compared = 0;
  for (const auto& [op, cases] : table.all())
    for (const OpCase& c : cases) {
      if (op.find("Apply") == std::string::npos || !op.starts_with("Resource")) continue;
      if (c.inputs[0].dtype() != DType::Float32) continue;
      const auto variables = static_cast<int>(c.variables.size());
      std::vector<Tensor> wide, typed;
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        const bool is_variable = i < c.variables.size();
        typed.push_back(cast(c.inputs[i], is_variable ? stored : computed));
        wide.push_back(cast(typed.back(), DType::Float32));
      }
      const auto expected = update(op, wide, variables, c.attrs, {});
      const auto actual = update(op, typed, variables, c.attrs, {});
      for (std::size_t v = 0; v < expected.size(); ++v) {
        const auto e = to_doubles(expected[v]), a = to_doubles(cast(actual[v], DType::Float32));
        for (std::size_t i = 0; i < e.size(); ++i)
          ASSERT_NEAR(a[i], e[i], tolerance * (1 + std::abs(e[i]))) << op << ", " << c.label << ", " << i;
      }
      ++compared;
    }
  EXPECT_GT(compared, 20);
}

TEST(ResourceApplyTest, HalfVariablesAreAddedToInFloat32) {
  const auto half = [](const Tensor& t) { return run_op("Cast", {t}, {{"DstT", DType::Float16}})[0]; };
  const auto wide = [](const Tensor& t) {
    return to_doubles(run_op("Cast", {t}, {{"DstT", DType::Float32}})[0]);
  };
  const Tensor w = half(f32({3, 1}, {1, 2, 3}));
  const Tensor two = f32({2, 1}, {0.5F, 0.25F});
  // 2049 is no float16: the sum of both is rounded twice, each time to even.
  EXPECT_EQ(wide(update("ResourceScatterAdd", {w, axes({2, 2}), two}, 1, {}, {})[0]),
            (std::vector<double>{1, 2, 3.75}));
  EXPECT_EQ(wide(update("ResourceScatterAdd", {half(f32({1}, {2048})), axes({0, 0}), f32({2}, {1, 1})}, 1, {},
                        {})[0]),
            (std::vector<double>{2048}));
  EXPECT_EQ(wide(update("ResourceScatterNdSub", {w, i32({1, 1}, {1}), f32({1, 1}, {0.5F})}, 1, {}, {})[0]),
            (std::vector<double>{1, 1.5, 3}));
  EXPECT_EQ(wide(update("AssignAddVariableOp", {w, f32({3, 1}, {0.5F, 1, 1})}, 1, {}, {})[0]),
            (std::vector<double>{1.5, 3, 4}));
}

TEST(ResourceApplyTest, Float64VariablesFollowTheSameFormulas) {
  expect_updates_as_of_float32(DType::Float64, 1e-5);
}

TEST(ResourceApplyTest, HalfVariablesAreUpdatedInFloat32AndRounded) {
  expect_updates_as_of_float32(DType::Float16, 2e-3);
  expect_updates_as_of_float32(DType::BFloat16, 2e-2);
}

TEST(ResourceApplyTest, TypesThatDoNotFitAreRefused) {
  const Tensor w = run_op("Cast", {f32({1}, {1})}, {{"DstT", DType::Float64}})[0];
  EXPECT_THAT(update_refusal("ResourceApplyGradientDescent", {w, f32({}, {1}), f32({1}, {1})}, 1),
              ::testing::HasSubstr("the variable holds float64, the gradient is float32"));
}

TEST(ResourceApplyTest, KerasMomentumKeepsTheScaledStepInItsSlot) {
  const auto after =
      update("ResourceApplyKerasMomentum",
             {f32({1}, {1}), f32({1}, {0.5F}), f32({}, {0.1F}), f32({1}, {2}), f32({}, {0.5F})}, 2,
             {{"use_nesterov", true}}, {});
  EXPECT_FLOAT_EQ(after[1].data<float>()[0], 0.05F);
  EXPECT_FLOAT_EQ(after[0].data<float>()[0], 1 + 0.5F * 0.05F - 0.2F);
}

TEST(ResourceScatterAddTest, CountsEveryDuplicate) {
  const auto after =
      update("ResourceScatterAdd", {i64({3}, {10, 20, 30}), axes({2, 0, 2}), i64({3}, {1, 2, 4})}, 1, {}, {});
  EXPECT_EQ(to_doubles(after[0]), (std::vector<double>{12, 20, 35}));
}

}  // namespace
}  // namespace braid::testing
