// Optimizers that have states of other shapes than their variables, against implementations in PyTorch and
// NumPy, and what their codes are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/optim.h"
#include "engine/ops/optimizer/adafactor.h"
#include "engine/ops/optimizer/adam_codes.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

Tensor f32_of(const Shape& shape, const std::vector<float>& values) {
  Tensor t(DType::Float32, shape);
  std::ranges::copy(values, t.data<float>().begin());
  return t;
}

/// Runs an update whose first inputs are variables; their values afterwards.
std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, const OptimizerSpec& spec,
                           const StepParams& params, int width = 1) {
  OpCase c{.label = op, .inputs = std::move(inputs), .attrs = optimizer_attrs(spec)};
  for (int i = 0; i + 1 < static_cast<int>(c.inputs.size()); ++i) c.variables.push_back(i);
  return run_update(op, c, params, width);
}

OptimizerSpec spec_of(const nlohmann::json& entry) {
  const bool factors = entry["kind"] == "ADAFACTOR";
  const auto& fields = entry["spec"];
  OptimizerSpec spec{.kind = factors ? OptimizerKind::Adafactor : OptimizerKind::Adam};
  spec.beta1 = fields.value("beta1", factors ? 0.0F : 0.9F);
  spec.beta2 = fields.value("beta2", 0.999F);
  if (factors) spec.epsilon = 1e-30F;
  spec.weight_decay = fields.value("weight_decay", 0.0F);
  spec.clip_threshold = fields.value("clip_threshold", 1.0F);
  spec.scale_by_weights = fields.value("scale_by_weights", true);
  spec.decay_exponent = fields.value("decay", 0.8F);
  return spec;
}

/// All states begin with zeros.
std::vector<Tensor> first_state(const nlohmann::json& entry, const OptimizerSpec& spec, const Shape& shape) {
  std::vector<Tensor> state{f32_of(shape, entry["weights"].get<std::vector<float>>())};
  if (spec.kind == OptimizerKind::Adam) {
    const Shape scales{(shape.elements() + adam_codes::kBlock - 1) / adam_codes::kBlock};
    for (int i = 0; i < 2; ++i) state.push_back(Tensor::zeros(DType::UInt8, shape));
    for (int i = 0; i < 2; ++i) state.push_back(Tensor::zeros(DType::Float32, scales));
    return state;
  }
  const AdafactorLayout of = adafactor_layout(spec, shape);
  if (of.has_moment) state.push_back(Tensor::zeros(DType::Float32, shape));
  std::vector<std::int64_t> rows(shape.dims().begin(), shape.dims().end()), columns = rows;
  if (of.factored) {
    rows.pop_back();
    columns.erase(columns.end() - 2);
    state.push_back(Tensor::zeros(DType::Float32, Shape(rows)));
  }
  state.push_back(Tensor::zeros(DType::Float32, Shape(columns)));
  return state;
}

void expect_values(const Tensor& got, const std::vector<double>& expected) {
  ASSERT_EQ(static_cast<std::size_t>(got.elements()), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = got.dtype() == DType::UInt8
                             ? double{static_cast<double>(got.data<std::uint8_t>()[i])}
                             : double{got.data<float>()[i]};
    const double most = got.dtype() == DType::UInt8 ? 0 : 5e-6 * std::abs(expected[i]) + 3e-8;
    ASSERT_NEAR(value, expected[i], most) << "element " << i;
  }
}

TEST(WholeUpdatesTest, AgreeWithPyTorchAndNumPy) {
  std::ifstream file(std::filesystem::path(BRAID_SOURCE_DIR) /
                     "tests/engine/ops/optimizer/golden/whole_updates.json");
  const auto recorded = nlohmann::json::parse(file);
  ASSERT_EQ(recorded["cases"].size(), 6U);
  for (const auto& entry : recorded["cases"]) {
    SCOPED_TRACE(entry["kind"].get<std::string>() + " " + entry["spec"].dump());
    const OptimizerSpec spec = spec_of(entry);
    const Shape shape(entry["shape"].get<std::vector<std::int64_t>>());
    const char* op = spec.kind == OptimizerKind::Adam ? "braid.ApplyAdam8Bit" : "braid.ApplyAdafactor";
    std::vector<Tensor> state = first_state(entry, spec, shape);
    std::uint64_t number = 0;
    for (const auto& step : entry["steps"]) {
      std::vector<Tensor> inputs = state;
      inputs.push_back(f32_of(shape, step["gradient"].get<std::vector<float>>()));
      state =
          update(op, std::move(inputs), spec, {.step = number++, .learning_rate = recorded["learning_rate"]});
      const auto expected = step["values"].get<std::vector<std::vector<double>>>();
      ASSERT_EQ(state.size(), expected.size());
      for (std::size_t v = 0; v < state.size(); ++v) {
        SCOPED_TRACE("step " + std::to_string(number) + ", value " + std::to_string(v));
        expect_values(state[v], expected[v]);
      }
    }
  }
}

TEST(WholeUpdatesTest, CodesGoBackAndForth) {
  for (const adam_codes::Table* table : {&adam_codes::kSigned, &adam_codes::kUnsigned}) {
    EXPECT_TRUE(std::is_sorted(std::begin(table->values), std::end(table->values)));
    EXPECT_EQ(adam_codes::value_of(*table, 0), 0.0F) << "a state of zeros is codes of zero";
    EXPECT_EQ(adam_codes::code_of(*table, 0.0F), 0);
    for (int code = 0; code < 256; ++code)
      EXPECT_EQ(adam_codes::code_of(*table, adam_codes::value_of(*table, static_cast<std::uint8_t>(code))),
                code);
    EXPECT_EQ(table->values[255], 1.0F);
  }
  // Nearest, with steps that grow with the number.
  for (const float x : {-0.99F, -0.3F, -0.011F, 2e-5F, 0.04F, 0.2F, 0.77F}) {
    const float back = adam_codes::value_of(adam_codes::kSigned, adam_codes::code_of(adam_codes::kSigned, x));
    EXPECT_NEAR(back, x, 0.16F * std::abs(x)) << x;
    for (const float other : adam_codes::kSigned.values) EXPECT_LE(std::abs(back - x), std::abs(other - x));
  }
}

/// Bits follow from the values, not from the number of threads.
TEST(WholeUpdatesTest, ThreadsChangeNothing) {
  const Shape shape{301, 400};
  const auto drawn = [](const Shape& of, std::uint64_t seed) {
    return converted(random_f64(of, seed, -1, 1.5), DType::Float32);
  };
  const OptimizerSpec spec{.kind = OptimizerKind::Adafactor, .beta1 = 0.9F, .epsilon = 1e-30F};
  const auto run = [&](int width) {
    return update(
        "braid.ApplyAdafactor",
        {drawn(shape, 1), Tensor::zeros(DType::Float32, shape), Tensor::zeros(DType::Float32, {301}),
         Tensor::zeros(DType::Float32, {400}), drawn(shape, 2)},
        spec, {.step = 0, .learning_rate = 0.1F}, width);
  };
  const std::vector<Tensor> alone = run(1);
  for (const int width : {2, 3}) {
    const std::vector<Tensor> several = run(width);
    for (std::size_t v = 0; v < alone.size(); ++v)
      EXPECT_EQ(std::memcmp(alone[v].raw(), several[v].raw(), alone[v].bytes()), 0) << v;
  }
}

TEST(WholeUpdatesTest, StatesOfOtherShapesAreRefused) {
  const OptimizerSpec spec{.kind = OptimizerKind::Adafactor, .beta1 = 0};
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(DType::Float32, shape); };
  EXPECT_THAT(
      message_of([&] {
        update("braid.ApplyAdafactor", {zeros({3, 4}), zeros({4}), zeros({3}), zeros({3, 4})}, spec, {});
      }),
      HasSubstr("is no state of shape [3]"));
  EXPECT_THAT(message_of([&] {
                update("braid.ApplyAdafactor", {zeros({3, 4}), zeros({3, 4}), zeros({3, 4})}, spec, {});
              }),
              HasSubstr("takes 2 states, got 1"));
  const OptimizerSpec adam{.kind = OptimizerKind::Adam};
  EXPECT_THAT(message_of([&] {
                update("braid.ApplyAdam8Bit",
                       {zeros({300}), Tensor::zeros(DType::UInt8, {300}), Tensor::zeros(DType::UInt8, {300}),
                        zeros({1}), zeros({2}), zeros({300})},
                       adam, {});
              }),
              HasSubstr("no scales of 2 blocks"));
}

}  // namespace
}  // namespace braid::testing
