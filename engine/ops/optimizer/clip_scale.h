// What gradients are scaled by so that their global norm is at most `most`; NaN where the norm is infinite or
// not a number. One formula for the host and a device (clip_by_norm.cc, .cu).
#pragma once

#include "engine/ops/common/kernel_util.h"

namespace braid {

BRAID_INLINE float clip_scale(float norm, float most) {
  const float nothing = norm - norm;  // NaN where the norm is not finite
  return (norm <= most ? 1.0F : most / norm) + nothing;
}

}  // namespace braid
