// The two-branch linear regression Z = w_x X + w_y Y + b over two streams: 17 points, full batches, SGD. Its
// two inputs are equal, so only w_x + w_y is determined. Thread rule: pure functions.
#pragma once

#include <array>

#include "examples/multistream_training/sgd_loop.h"

namespace braid {

struct Regression {
  static constexpr std::size_t kPoints = 17;
  static constexpr float kLearningRate = 0.01F;
  static constexpr int kSteps = 1000;
  static constexpr int kLogSteps = 100;
  static const std::array<float, kPoints> kInputs;  // X and Y
  static const std::array<float, kPoints> kTruths;  // Z

  std::string loss;
  std::vector<Feed> feeds;
};

/// X's branch is on stream 0, Y's on stream 1.
Regression make_regression(GraphDef& graph);

}  // namespace braid
