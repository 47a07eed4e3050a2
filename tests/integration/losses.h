// Losses of a run beside those that were recorded. Thread rule: pure functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace braid::integration {

/// The largest |loss - expected| / (1 + |expected|) of a step. Both must have as many steps.
inline double worst_difference(const std::vector<double>& losses, const std::vector<double>& expected) {
  EXPECT_EQ(losses.size(), expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(losses.size(), expected.size()); ++i)
    worst = std::max(worst, std::abs(losses[i] - expected[i]) / (1 + std::abs(expected[i])));
  return worst;
}

}  // namespace braid::integration
