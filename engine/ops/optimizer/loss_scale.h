// The rule of dynamic loss scaling, for the CPU and CUDA (loss_scale.cc). Thread rule: pure functions.
#pragma once

#include <limits>

#include "engine/ops/common/kernel_util.h"

namespace braid {

/// Inputs of braid.LossScaleStep: three handles, then flags.
struct LossScaleInputs {
  static constexpr int kFlags = 3;
};

struct LossScaleStep {
  float inverse;      // what gradients are multiplied by; NaN: nothing is updated
  float scale, good;  // from the next step on
};

BRAID_INLINE LossScaleStep step_loss_scale(float scale, float good, bool bad, float growth) {
  constexpr float kLeast = 1, kMost = 1 << 24;
  if (bad) return {std::numeric_limits<float>::quiet_NaN(), scale > 2 * kLeast ? scale / 2 : kLeast, 0};
  const float inverse = 1 / scale;
  if (good + 1 < growth) return {inverse, scale, good + 1};
  return {inverse, scale < kMost / 2 ? scale * 2 : kMost, 0};
}

}  // namespace braid
