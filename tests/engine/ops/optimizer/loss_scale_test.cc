// What a step does to the scale of the loss, and that updates leave elements alone whose gradient is NaN.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/optim.h"
#include "engine/ops/optimizer/loss_scale.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

TEST(LossScaleTest, AnOverflowHalvesItAndGoodStepsDoubleIt) {
  LossScaleStep step = step_loss_scale(1024, 5, true, 3);
  EXPECT_TRUE(std::isnan(step.inverse));
  EXPECT_EQ(step.scale, 512);
  EXPECT_EQ(step.good, 0);
  step = step_loss_scale(512, 1, false, 3);
  EXPECT_EQ(step.inverse, 1.0F / 512);
  EXPECT_EQ(step.scale, 512);
  EXPECT_EQ(step.good, 2);
  step = step_loss_scale(512, 2, false, 3);
  EXPECT_EQ(step.inverse, 1.0F / 512) << "as the loss was scaled";
  EXPECT_EQ(step.scale, 1024);
  EXPECT_EQ(step.good, 0);
  EXPECT_EQ(step_loss_scale(1, 0, true, 3).scale, 1);
  EXPECT_EQ(step_loss_scale(1 << 24, 2, false, 3).scale, 1 << 24);
}

TEST(LossScaleTest, OneElementThatIsNoNumberIsFound) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    for (const std::size_t at : {0, 31, 40000, 69999}) {
      Tensor x = converted(random_f64({70000}, 1, -3e38, 3e38), DType::Float32);
      EXPECT_EQ(values("braid.NotFinite", {x}), (std::vector<double>{0}));
      x.data<float>()[at] = bad;
      EXPECT_EQ(values("braid.NotFinite", {f32({1}, {1}), x}), (std::vector<double>{1})) << at;
    }
}

TEST(LossScaleTest, UpdatesOfNaNLeaveWeightsAndSlotsAlone) {
  constexpr std::size_t kElements = 37;
  for (const OptimizerKind kind : kOptimizerKinds) {
    OptimizerSpec spec{.kind = kind, .skip_nan = true, .weight_decay = 0.01F};
    const std::size_t slots = optimizer_slots(spec).size();
    std::vector<float> w(kElements, 0.5F), g(kElements, std::numeric_limits<float>::quiet_NaN());
    std::vector<std::vector<float>> state(slots, std::vector<float>(kElements, 0.25F));
    std::vector<float*> pointers;
    for (auto& one : state) pointers.push_back(one.data());
    g[3] = 1;
    apply_update(spec, {}, w, g, pointers);
    for (std::size_t i = 0; i < kElements; ++i) {
      EXPECT_EQ(w[i] == 0.5F, i != 3) << optimizer_name(kind) << " element " << i;
      EXPECT_FALSE(std::isnan(w[i]));
      for (const auto& one : state) EXPECT_TRUE(i == 3 || one[i] == 0.25F) << optimizer_name(kind);
    }
    spec.skip_nan = false;
    apply_update(spec, {}, w, g, pointers);
    EXPECT_NE(w[0], 0.5F) << optimizer_name(kind);  // NaN, or 0 where FTRL compares with it
  }
}

}  // namespace
}  // namespace braid::testing
