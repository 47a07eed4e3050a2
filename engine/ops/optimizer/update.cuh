// Steps of an optimizer on the device, by the formulas of base/optim_formulas.h: what the dense and the
// sparse updates share. What changes from step to step is read from StepParams by the device.
#pragma once

#include "base/optim_formulas.h"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {

inline constexpr int kSlots = optim::kMostSlots;

/// The update of this step in shared memory. All threads of the block call it.
__device__ inline void load_update(PreparedUpdate& shared, const OptimizerSpec& spec,
                                   const StepParams* params) {
  // Adam's powers are many operations, so one thread does them.
  if (threadIdx.x == 0)
    shared = optim::prepared(
        spec,
        {.learning_rate = params->learning_rate, .grad_scale = params->grad_scale, .step = params->step});
  __syncthreads();
}

/// Updates elements [at, at + kCount) of a variable, which lie on a boundary of that many, with the gradient
/// `g`. `slots` are the variable's.
template <class Formula, int kCount>
__device__ void update_pack(const PreparedUpdate& u, const Pack<float, kCount>& g, float* w,
                            float* const (&slots)[kSlots], std::int64_t at) {
  using Elements = Pack<float, kCount>;
  auto& weights = *reinterpret_cast<Elements*>(w + at);
  Elements x = weights;
  Elements s[kSlots];
#pragma unroll
  for (int k = 0; k < Formula::kSlots; ++k) s[k] = *reinterpret_cast<const Elements*>(slots[k] + at);
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    float state[kSlots];
#pragma unroll
    for (int k = 0; k < Formula::kSlots; ++k) state[k] = s[k].at[e];
    const float old = u.decay != 0 ? x.at[e] - u.decay * x.at[e] : x.at[e];
    x.at[e] = Formula::apply(u, old, g.at[e] * u.grad_scale, state);
#pragma unroll
    for (int k = 0; k < Formula::kSlots; ++k) s[k].at[e] = state[k];
  }
  weights = x;
#pragma unroll
  for (int k = 0; k < Formula::kSlots; ++k) *reinterpret_cast<Elements*>(slots[k] + at) = s[k];
}

}  // namespace braid::cuda
