// What every kind of table must do. A kind takes part with an adapter that shows it as one variable:
//   explicit Adapter(const OptimizerSpec&)        a fresh table
//   std::vector<float> initial() const            what its values must be at first
//   void apply(const UpdateParams&, const std::vector<std::vector<float>>& gradients)   one round, whole
//   gradients std::vector<float> values(); std::vector<float> slot(int k);
#pragma once

#include <gtest/gtest.h>

#include "tests/ps/reference.h"

namespace braid::ps {

template <class Adapter>
class TableConformance : public testing::Test {};

TYPED_TEST_SUITE_P(TableConformance);

TYPED_TEST_P(TableConformance, StartsWithInitialValuesAndSlots) {
  for (const OptimizerSpec& optimizer : all_optimizers()) {
    TypeParam table(optimizer);
    EXPECT_EQ(table.values(), table.initial());
    const auto slots = optimizer_slots(optimizer);
    for (std::size_t k = 0; k < slots.size(); ++k)
      EXPECT_EQ(table.slot(static_cast<int>(k)),
                std::vector<float>(table.initial().size(), slots[k].initial_value));
  }
}

TYPED_TEST_P(TableConformance, RoundsEqualTheFormulaBitwise) {
  for (const OptimizerSpec& optimizer : all_optimizers()) {
    for (int workers : {1, 3}) {
      TypeParam table(optimizer);
      ReferenceVariable reference(optimizer, table.initial());
      for (std::uint64_t step = 0; step < 3; ++step) {
        const UpdateParams params{0.05F, 1.0F / static_cast<float>(workers), step};
        std::vector<std::vector<float>> gradients;
        for (int w = 0; w < workers; ++w)
          gradients.push_back(random_floats("g" + std::to_string(w), step, table.initial().size()));
        table.apply(params, gradients);
        reference.apply(params, gradients);
      }
      EXPECT_EQ(table.values(), reference.values())
          << optimizer_name(optimizer.kind) << ", " << workers << " workers";
      for (std::size_t k = 0; k < optimizer_slots(optimizer).size(); ++k)
        EXPECT_EQ(table.slot(static_cast<int>(k)), reference.slot(k)) << optimizer_name(optimizer.kind);
    }
  }
}

TYPED_TEST_P(TableConformance, TheOrderOfTheWorkersDecidesTheBits) {
  OptimizerSpec optimizer;
  TypeParam forward(optimizer), backward(optimizer);
  std::vector<std::vector<float>> gradients;
  for (int w = 0; w < 3; ++w)
    gradients.push_back(random_floats("o" + std::to_string(w), 0, forward.initial().size()));
  const std::vector<std::vector<float>> reversed(gradients.rbegin(), gradients.rend());
  forward.apply({0.1F, 1.0F, 0}, gradients);
  backward.apply({0.1F, 1.0F, 0}, reversed);
  EXPECT_NE(forward.values(), backward.values()) << "these gradients cannot tell an order from another";
}

REGISTER_TYPED_TEST_SUITE_P(TableConformance, StartsWithInitialValuesAndSlots, RoundsEqualTheFormulaBitwise,
                            TheOrderOfTheWorkersDecidesTheBits);

}  // namespace braid::ps
