#include "engine/device/core_budget.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(CoreBudgetTest, NobodySpinsWhereProcessesAreMoreThanCores) {
  CoreBudget::enter();
  EXPECT_TRUE(CoreBudget::may_spin());
  CoreBudget::share_with(usable_cores() + 1);
  EXPECT_FALSE(CoreBudget::may_spin());
  CoreBudget::share_with(usable_cores());
  EXPECT_TRUE(CoreBudget::may_spin());
  EXPECT_FALSE(CoreBudget::may_spin(1)) << "its one core is taken";
  CoreBudget::share_with(0);
  EXPECT_EQ(CoreBudget::may_spin(usable_cores() - 1), true) << "alone";
  CoreBudget::leave();
}

}  // namespace
}  // namespace braid
