#include "base/optim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

/// The formulas of base/optim.h once more, for one element, in double.
struct Reference {
  OptimizerSpec spec;
  double w = 0;
  double slot[3] = {0, 0, 0};

  void update(const UpdateParams& p, double gradient) {
    const double lr = p.learning_rate * spec.learning_rate_factor, t = static_cast<double>(p.step) + 1;
    double g = gradient * p.grad_scale;
    if (spec.clip_value > 0) g = std::clamp<double>(g, -spec.clip_value, spec.clip_value);
    if (spec.kind != OptimizerKind::Ftrl) g += spec.l2 * w + spec.l1 * (w > 0 ? 1 : w < 0 ? -1 : 0);
    w -= lr * spec.weight_decay * w;
    switch (spec.kind) {
      case OptimizerKind::Sgd:
        w -= lr * g;
        break;
      case OptimizerKind::Momentum:
        slot[0] = spec.momentum * slot[0] + g;
        w -= lr * (spec.nesterov ? g + spec.momentum * slot[0] : slot[0]);
        break;
      case OptimizerKind::Adagrad:
        slot[0] += g * g;
        w -= lr * g / (std::sqrt(slot[0]) + spec.adagrad_epsilon);
        break;
      case OptimizerKind::Adam: {
        const double b1 = spec.beta1, b2 = spec.beta2;
        slot[0] += (1 - b1) * (g - slot[0]);
        slot[1] += (1 - b2) * (g * g - slot[1]);
        w -= lr * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t)) * slot[0] /
             (std::sqrt(slot[1]) + spec.epsilon);
        break;
      }
      case OptimizerKind::Ftrl: {
        const double before = slot[0], power = -spec.learning_rate_power;
        slot[0] += g * g;
        const double root = std::pow(slot[0], power);
        slot[1] += g + 2 * spec.l2_shrinkage * w - (root - std::pow(before, power)) / lr * w;
        const double z = slot[1], clipped = std::clamp<double>(z, -spec.l1, spec.l1);
        w = (clipped - z) / (root / lr + 2 * spec.l2);
        break;
      }
      case OptimizerKind::RmsProp: {
        slot[0] = spec.rho * slot[0] + (1 - spec.rho) * g * g;
        if (spec.centered) slot[1] = spec.rho * slot[1] + (1 - spec.rho) * g;
        double& m = slot[spec.centered ? 2 : 1];
        m = spec.momentum * m +
            lr * g / std::sqrt(slot[0] - (spec.centered ? slot[1] * slot[1] : 0) + spec.epsilon);
        w -= m;
        break;
      }
      case OptimizerKind::Adafactor:
      case OptimizerKind::Adam8Bit:
        FAIL() << "has an op of its own";
    }
  }
};

/// A run of float32 weights with its slots.
struct Variable {
  std::vector<float> weights;
  std::vector<std::vector<float>> slots;

  Variable(const OptimizerSpec& spec, std::vector<float> initial) : weights(std::move(initial)) {
    for (const SlotSpec& s : optimizer_slots(spec)) slots.emplace_back(weights.size(), s.initial_value);
  }
  void update(const OptimizerSpec& spec, const UpdateParams& params, const std::vector<float>& gradient,
              std::size_t begin, std::size_t end) {
    std::vector<float*> at;
    for (auto& s : slots) at.push_back(s.data() + begin);
    apply_update(spec, params, std::span(weights).subspan(begin, end - begin),
                 std::span(gradient).subspan(begin, end - begin), at);
  }
};

std::vector<float> normals(std::size_t n, std::uint64_t step) {
  std::vector<float> out(n);
  fill_normal01(make_rng_key(11, "values", step), 0, out);
  return out;
}

std::vector<OptimizerSpec> all_specs() {
  std::vector<OptimizerSpec> specs;
  for (float decay : {0.0F, 0.01F}) {
    for (auto kind :
         {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adagrad, OptimizerKind::Adam})
      specs.push_back({.kind = kind, .weight_decay = decay});
    specs.push_back({.kind = OptimizerKind::Momentum, .nesterov = true, .weight_decay = decay});
  }
  using enum OptimizerKind;
  specs.push_back({.kind = Ftrl});
  specs.push_back({.kind = Ftrl, .l2_shrinkage = 0.1F, .l1 = 0.3F, .l2 = 0.2F});
  specs.push_back({.kind = Ftrl, .learning_rate_power = -0.7F, .l1 = 0.1F, .clip_value = 0.5F});
  specs.push_back({.kind = Ftrl, .learning_rate_power = 0, .learning_rate_factor = 0.5F});
  specs.push_back({.kind = RmsProp, .momentum = 0, .epsilon = 1e-3F});
  specs.push_back({.kind = RmsProp, .epsilon = 1e-3F, .rho = 0.8F});
  specs.push_back({.kind = RmsProp, .momentum = 0, .epsilon = 0.01F, .centered = true});
  specs.push_back({.kind = RmsProp, .momentum = 0.5F, .epsilon = 0.01F, .centered = true});
  for (const OptimizerKind kind : {Sgd, Momentum, Adagrad, Adam})
    specs.push_back({.kind = kind,
                     .weight_decay = 0.01F,
                     .l1 = 0.01F,
                     .l2 = 0.02F,
                     .clip_value = 0.7F,
                     .learning_rate_factor = 0.25F});
  return specs;
}

TEST(OptimTest, FollowsTheDoubleReferenceOverManySteps) {
  constexpr std::size_t kSize = 37;  // a vector body and a remainder
  for (const OptimizerSpec& spec : all_specs()) {
    SCOPED_TRACE(std::string(optimizer_name(spec.kind)) + (spec.nesterov ? " nesterov" : ""));
    Variable run(spec, normals(kSize, 1000));
    std::vector<Reference> reference(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      reference[i] = {spec, run.weights[i]};
      for (std::size_t k = 0; k < run.slots.size(); ++k) reference[i].slot[k] = run.slots[k][i];
    }
    for (std::uint64_t step = 0; step < 100; ++step) {
      const UpdateParams params{.learning_rate = 0.02F, .grad_scale = 0.5F, .step = step};
      const auto gradient = normals(kSize, step);
      run.update(spec, params, gradient, 0, kSize);
      for (std::size_t i = 0; i < kSize; ++i) {
        reference[i].update(params, gradient[i]);
        ASSERT_NEAR(run.weights[i], reference[i].w, 1e-5) << "step " << step << ", element " << i;
        for (std::size_t k = 0; k < run.slots.size(); ++k)
          ASSERT_NEAR(run.slots[k][i], reference[i].slot[k], 5e-5 * (1 + std::abs(reference[i].slot[k])));
      }
    }
  }
}

// With a constant gradient m = g (1 - b1^t) and v = g^2 (1 - b2^t), so every step of Adam is lr * sign(g).
TEST(OptimTest, AdamWithAConstantGradientMovesByItsLearningRate) {
  const OptimizerSpec spec{.kind = OptimizerKind::Adam, .epsilon = 1e-12F};
  Variable run(spec, {1.0F, 1.0F});
  for (std::uint64_t step = 0; step < 50; ++step)
    run.update(spec, {.learning_rate = 0.001F, .step = step}, {3, -0.01F}, 0, 2);
  EXPECT_NEAR(run.weights[0], 1 - 0.05, 50 * 0x1p-24 + 1e-7);  // a rounding a step
  EXPECT_NEAR(run.weights[1], 1 + 0.05, 50 * 0x1p-23 + 1e-7);
}

// By hand: g = 2 then -1, lr 0.1, b1 0.5, b2 0.75, eps 0. t = 1: m = 1, v = 1, lr_t = 0.1 * 0.5 / 0.5;
// t = 2: m = 0, v = 1. The second step does not move the weight.
TEST(OptimTest, AdamFollowsAHandComputedTrajectory) {
  const OptimizerSpec spec{.kind = OptimizerKind::Adam, .beta1 = 0.5F, .beta2 = 0.75F, .epsilon = 0};
  Variable run(spec, {1.0F});
  run.update(spec, {.learning_rate = 0.1F, .step = 0}, {2}, 0, 1);
  EXPECT_FLOAT_EQ(run.weights[0], 0.9F);
  EXPECT_FLOAT_EQ(run.slots[0][0], 1);
  EXPECT_FLOAT_EQ(run.slots[1][0], 1);
  run.update(spec, {.learning_rate = 0.1F, .step = 1}, {-1}, 0, 1);
  EXPECT_FLOAT_EQ(run.weights[0], 0.9F);
  EXPECT_FLOAT_EQ(run.slots[0][0], 0);
  EXPECT_FLOAT_EQ(run.slots[1][0], 1);
}

// SGD on f(w) = w^2 / 2 contracts by (1 - lr) a step; heavy ball has its own two-term recurrence.
TEST(OptimTest, SgdAndMomentumFollowTheirClosedFormsOnAParabola) {
  const OptimizerSpec sgd{.kind = OptimizerKind::Sgd},
      heavy{.kind = OptimizerKind::Momentum, .momentum = 0.5F};
  Variable a(sgd, {1.0F}), b(heavy, {1.0F});
  double previous = 1, current = 1;
  for (std::uint64_t step = 0; step < 20; ++step) {
    a.update(sgd, {.learning_rate = 0.1F, .step = step}, {a.weights[0]}, 0, 1);
    b.update(heavy, {.learning_rate = 0.1F, .step = step}, {b.weights[0]}, 0, 1);
    const double next = current - 0.1 * current + 0.5 * (current - previous);
    previous = current;
    current = next;
  }
  EXPECT_NEAR(a.weights[0], std::pow(0.9, 20), 1e-6);
  EXPECT_NEAR(b.weights[0], current, 1e-6);
}

TEST(OptimTest, AdagradWithAConstantGradientSumsInverseRoots) {
  const OptimizerSpec spec{.kind = OptimizerKind::Adagrad, .initial_accumulator = 0.0F};
  Variable run(spec, {0.0F});
  double expected = 0;
  for (std::uint64_t step = 0; step < 30; ++step) {
    run.update(spec, {.learning_rate = 0.1F, .step = step}, {5}, 0, 1);
    expected -= 0.1 / std::sqrt(step + 1.0);
  }
  EXPECT_NEAR(run.weights[0], expected, 1e-6);
}

TEST(OptimTest, AnySplitGivesTheSameBits) {
  constexpr std::size_t kSize = 103;
  for (const OptimizerSpec& spec : all_specs()) {
    SCOPED_TRACE(optimizer_name(spec.kind));
    Variable whole(spec, normals(kSize, 1)), parts(spec, normals(kSize, 1));
    for (std::uint64_t step = 0; step < 5; ++step) {
      const UpdateParams params{.learning_rate = 0.1F, .grad_scale = 0.3F, .step = step};
      const auto gradient = normals(kSize, step + 10);
      whole.update(spec, params, gradient, 0, kSize);
      for (std::size_t at = 0; at < kSize; at += step + 1)
        parts.update(spec, params, gradient, at, std::min(at + step + 1, kSize));
    }
    EXPECT_EQ(std::memcmp(whole.weights.data(), parts.weights.data(), kSize * sizeof(float)), 0);
    for (std::size_t k = 0; k < whole.slots.size(); ++k)
      EXPECT_EQ(std::memcmp(whole.slots[k].data(), parts.slots[k].data(), kSize * sizeof(float)), 0);
  }
}

TEST(OptimTest, AdamsLearningRateTendsToThePlainOne) {
  const OptimizerSpec spec{.kind = OptimizerKind::Adam};
  EXPECT_NEAR(effective_learning_rate(spec, {.learning_rate = 1, .step = 0}), std::sqrt(0.001) / 0.1, 1e-5);
  EXPECT_NEAR(effective_learning_rate(spec, {.learning_rate = 1, .step = 999}),
              std::sqrt(1 - std::pow(double{0.999F}, 1000)), 1e-6);
  EXPECT_FLOAT_EQ(effective_learning_rate(spec, {.learning_rate = 1, .step = std::uint64_t{1} << 40}), 1);
  EXPECT_FLOAT_EQ(effective_learning_rate({.kind = OptimizerKind::Sgd}, {.learning_rate = 0.3F}), 0.3F);
}

TEST(OptimTest, WithoutDecayAWeightWithoutGradientKeepsItsBits) {
  const OptimizerSpec spec{.kind = OptimizerKind::Sgd};
  Variable run(spec, {-0.0F, INFINITY, 1e-42F});
  run.update(spec, {}, {0, 0, 0}, 0, 3);
  EXPECT_TRUE(std::signbit(run.weights[0]) && run.weights[0] == 0);
  EXPECT_EQ(run.weights[1], INFINITY);
  EXPECT_EQ(run.weights[2], 1e-42F);
}

// z = g - 0 after the first step, so below l1 the weight is exactly 0, and above it is (l1 - z) / (root /
// lr).
TEST(OptimTest, FtrlPutsSmallWeightsToZero) {
  const OptimizerSpec spec{.kind = OptimizerKind::Ftrl, .initial_accumulator = 0.0F, .l1 = 1.0F};
  Variable run(spec, {0.0F, 0.0F, 0.0F});
  run.update(spec, {.learning_rate = 0.5F}, {0.9F, 3.0F, -3.0F}, 0, 3);
  EXPECT_EQ(run.weights[0], 0);
  EXPECT_FLOAT_EQ(run.weights[1], -0.5F * 2 / 3);
  EXPECT_FLOAT_EQ(run.weights[2], 0.5F * 2 / 3);
}

TEST(OptimTest, ClippingComesBeforeRegularisationAndAWeightOfZeroHasNoSign) {
  const OptimizerSpec spec{.kind = OptimizerKind::Sgd, .l1 = 0.5F, .l2 = 0.25F, .clip_value = 1};
  Variable run(spec, {0.0F, 4.0F, -4.0F});
  run.update(spec, {.learning_rate = 1}, {-8, 8, 0.5F}, 0, 3);
  EXPECT_FLOAT_EQ(run.weights[0], 1);
  EXPECT_FLOAT_EQ(run.weights[1], 4 - (1 + 1 + 0.5F));
  EXPECT_FLOAT_EQ(run.weights[2], -4 - (0.5F - 1 - 0.5F));
}

TEST(OptimTest, ANumberThatIsNotOneIsNotClippedAway) {
  const OptimizerSpec spec{.kind = OptimizerKind::Sgd, .clip_value = 1};
  Variable run(spec, {0.0F, 0.0F});
  run.update(spec, {.learning_rate = 1}, {NAN, INFINITY}, 0, 2);
  EXPECT_TRUE(std::isnan(run.weights[0]));
  EXPECT_EQ(run.weights[1], -1);
}

TEST(OptimTest, RmsPropKeepsOnlyTheSlotsThatItReads) {
  const auto names = [](const OptimizerSpec& spec) {
    std::string all;
    for (const SlotSpec& slot : optimizer_slots(spec)) all += std::string(slot.name) + " ";
    return all;
  };
  using enum OptimizerKind;
  EXPECT_EQ(names({.kind = RmsProp, .momentum = 0}), "rms ");
  EXPECT_EQ(names({.kind = RmsProp, .momentum = 0.9F}), "rms momentum ");
  EXPECT_EQ(names({.kind = RmsProp, .momentum = 0, .centered = true}), "rms mean_gradient ");
  EXPECT_EQ(names({.kind = RmsProp, .momentum = 0.9F, .centered = true}), "rms mean_gradient momentum ");
  EXPECT_EQ(optimizer_slots({.kind = RmsProp, .momentum = 0, .initial_accumulator = 1}).at(0).initial_value,
            1);
  for (const OptimizerSpec& spec : all_specs())
    EXPECT_EQ(prepare_update(spec, {}).slots, optimizer_slots(spec).size());
}

TEST(OptimTest, RefusesRunsThatDoNotFit) {
  std::vector<float> w(4), g(3), m(4);
  float* slots[] = {m.data()};
  try {
    apply_update({.kind = OptimizerKind::Momentum}, {}, w, g, slots);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.message(), "[MOMENTUM] 4 weights need as many gradients and 1 slots, got 3 and 1");
  }
  EXPECT_THROW(apply_update({.kind = OptimizerKind::Adam}, {}, w, w, slots), InvalidArgument);
  EXPECT_THROW(optimizer_slots({.kind = static_cast<OptimizerKind>(9)}), InvalidArgument);
}

OptimizerSpec spec_of(const std::string& kind, const nlohmann::json& fields) {
  OptimizerSpec spec;
  using enum OptimizerKind;
  for (const OptimizerKind k : {Sgd, Momentum, Adagrad, Adam, Ftrl, RmsProp})
    if (optimizer_name(k) == kind) spec.kind = k;
  if (spec.kind == RmsProp) spec.initial_accumulator = 0;
  spec.momentum = fields.value("momentum", spec.momentum);
  spec.nesterov = fields.value("nesterov", spec.nesterov);
  spec.beta1 = fields.value("beta1", spec.beta1);
  spec.beta2 = fields.value("beta2", spec.beta2);
  spec.epsilon = fields.value("epsilon", spec.epsilon);
  spec.initial_accumulator = fields.value("initial_accumulator", spec.initial_accumulator);
  spec.rho = fields.value("rho", spec.rho);
  spec.centered = fields.value("centered", spec.centered);
  spec.learning_rate_power = fields.value("learning_rate_power", spec.learning_rate_power);
  spec.l2_shrinkage = fields.value("l2_shrinkage", spec.l2_shrinkage);
  spec.l1 = fields.value("l1", spec.l1);
  spec.l2 = fields.value("l2", spec.l2);
  return spec;
}

TEST(OptimTest, RowWiseAdagradKeepsTheMeanOfARowsSquares) {
  for (const std::size_t n : {1U, 5U, 16U, 37U, 128U}) {
    const OptimizerSpec spec{.kind = OptimizerKind::Adagrad,
                             .weight_decay = n == 5 ? 0.1F : 0.0F,
                             .clip_value = n == 37 ? 0.4F : 0.0F,
                             .adagrad_epsilon = 1e-8F,
                             .row_wise = true};
    const UpdateParams params{.learning_rate = 0.05F, .grad_scale = 0.5F};
    std::vector<float> w(n), g(n);
    fill_normal01(make_rng_key(1, "w"), 0, w);
    fill_normal01(make_rng_key(2, "g"), 0, g);
    std::vector<double> expected(w.begin(), w.end());
    float slot = 0;
    double accumulator = 0;
    for (int step = 0; step < 3; ++step) {
      double squares = 0;
      const auto of = [&](std::size_t i) {
        const double scaled = g[i] * 0.5;
        return spec.clip_value > 0 ? std::clamp<double>(scaled, -spec.clip_value, spec.clip_value) : scaled;
      };
      for (std::size_t i = 0; i < n; ++i) squares += of(i) * of(i);
      accumulator += squares / static_cast<double>(n);
      for (std::size_t i = 0; i < n; ++i) {
        expected[i] -= 0.05 * spec.weight_decay * expected[i];
        expected[i] -= 0.05 * of(i) / (std::sqrt(accumulator) + 1e-8);
      }
      apply_row_update(prepare_update(spec, params), w, g, slot);
      EXPECT_NEAR(slot, accumulator, 1e-6 * accumulator) << n;
      for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(w[i], expected[i], 1e-6) << n << ", element " << i;
    }
  }
}

TEST(OptimTest, AdagradsEpsilonKeepsAnAccumulatorOfZeroFromDividingByIt) {
  const OptimizerSpec spec{
      .kind = OptimizerKind::Adagrad, .initial_accumulator = 0, .adagrad_epsilon = 1e-8F};
  std::vector<float> w{1, 2}, a{0, 0};
  float* slots[] = {a.data()};
  apply_update(spec, {.learning_rate = 0.004F}, w, std::vector<float>{0, 1e-3F}, slots);
  EXPECT_EQ(w[0], 1);
  EXPECT_NEAR(w[1], 2 - 0.004, 1e-6);
}

/// Whoever asks for slots like the variable, or updates a part of one, is told.
TEST(OptimTest, KindsThatNeedAllOfAVariableAreRefusedByName) {
  for (const OptimizerKind kind : {OptimizerKind::Adafactor, OptimizerKind::Adam8Bit}) {
    const OptimizerSpec spec{.kind = kind};
    EXPECT_FALSE(is_elementwise(spec));
    EXPECT_THROW(optimizer_slots(spec), InvalidArgument);
    EXPECT_THROW(prepare_update(spec, {}), InvalidArgument);
  }
  for (const OptimizerKind kind : kOptimizerKinds) EXPECT_TRUE(is_elementwise({.kind = kind}));
}

/// What TensorFlow's update ops made of the same weights and gradients (golden/make_optimizers.py).
TEST(OptimTest, AgreesWithTensorFlow) {
  std::ifstream file(std::filesystem::path(BRAID_SOURCE_DIR) / "tests/base/golden/optimizers.json");
  const auto recorded = nlohmann::json::parse(file);
  std::set<std::string> kinds;
  for (const auto& entry : recorded["cases"]) {
    SCOPED_TRACE(entry["kind"].get<std::string>() + " " + entry["spec"].dump());
    const OptimizerSpec spec = spec_of(entry["kind"], entry["spec"]);
    kinds.emplace(optimizer_name(spec.kind));
    Variable run(spec, entry["weights"].get<std::vector<float>>());
    std::uint64_t number = 0;
    for (const auto& step : entry["steps"]) {
      const auto gradient = step["gradient"].get<std::vector<float>>();
      run.update(spec, {.learning_rate = recorded["learning_rate"], .step = number++}, gradient, 0,
                 gradient.size());
      std::vector<std::vector<float>> got{run.weights};
      got.insert(got.end(), run.slots.begin(), run.slots.end());
      const auto expected = step["values"].get<std::vector<std::vector<float>>>();
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t v = 0; v < got.size(); ++v)
        for (std::size_t i = 0; i < expected[v].size(); ++i)
          EXPECT_NEAR(got[v].at(i), expected[v][i], 2e-6 * (1 + std::abs(expected[v][i])))
              << "step " << number << ", value " << v;
    }
    EXPECT_EQ(number, 3U);
  }
  EXPECT_EQ(kinds.size(), 6U) << "every kind";
}

}  // namespace
}  // namespace braid
