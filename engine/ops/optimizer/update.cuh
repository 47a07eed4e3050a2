// Steps of an optimizer on the device, by the formulas of base/optim_formulas.h: what the dense and the
// sparse updates share. What changes from step to step is read from StepParams by the device.
#pragma once

#include "base/optim_formulas.h"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {

inline constexpr int kSlots = optim::kMostSlots;

/// The update of this step in shared memory, whose gradients are multiplied by `factor` unless it is null.
/// All threads of the block call it.
__device__ inline void load_update(PreparedUpdate& shared, const OptimizerSpec& spec,
                                   const StepParams* params, const float* factor = nullptr) {
  // Adam's powers are many operations, so one thread does them.
  if (threadIdx.x == 0)
    shared = optim::prepared(spec, {.learning_rate = params->learning_rate,
                                    .grad_scale = params->grad_scale * (factor ? *factor : 1.0F),
                                    .step = params->step});
  __syncthreads();
}

/// Calls body.operator()<Formula>(). The basic formulas are kernels of their own, so that the others'
/// registers do not cost them.
template <bool kBasic, class Body>
__device__ void with_formula(const PreparedUpdate& u, const Body& body) {
  if constexpr (kBasic)
    optim::with_basic_formula(u, body);
  else
    optim::with_formula(u, body);
}

/// Updates elements x of a variable, whose slots have s, with the gradient `g`.
/// `kBasic`: nothing but decay surrounds the formula.
template <class Formula, bool kBasic, int kCount>
__device__ void apply_pack(const PreparedUpdate& u, const Pack<float, kCount>& g, Pack<float, kCount>& x,
                           Pack<float, kCount> (&s)[kSlots]) {
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    float state[kSlots];
#pragma unroll
    for (int k = 0; k < Formula::kSlots; ++k) state[k] = s[k].at[e];
    if constexpr (!kBasic)
      if (u.skip_nan && g.at[e] != g.at[e]) continue;
    optim::Prepared<float> now{x.at[e], g.at[e] * u.grad_scale};
    if constexpr (!kBasic)
      now = optim::surrounded(u, now.w, now.g);
    else if (u.decay != 0)
      now.w -= u.decay * now.w;
    x.at[e] = Formula::apply(u, now.w, now.g, state);
#pragma unroll
    for (int k = 0; k < Formula::kSlots; ++k) s[k].at[e] = state[k];
  }
}

/// Updates elements [at, at + kCount) of a variable, which lie on a boundary of that many, with the gradient
/// `g`. `slots` are the variable's.
template <class Formula, int kCount, bool kBasic>
__device__ void update_pack(const PreparedUpdate& u, const Pack<float, kCount>& g, float* w,
                            float* const (&slots)[kSlots], std::int64_t at) {
  using Elements = Pack<float, kCount>;
  auto& weights = *reinterpret_cast<Elements*>(w + at);
  Elements x = weights;
  Elements s[kSlots];
#pragma unroll
  for (int k = 0; k < Formula::kSlots; ++k) s[k] = *reinterpret_cast<const Elements*>(slots[k] + at);
  apply_pack<Formula, kBasic>(u, g, x, s);
  weights = x;
#pragma unroll
  for (int k = 0; k < Formula::kSlots; ++k) *reinterpret_cast<Elements*>(slots[k] + at) = s[k];
}

/// The same of packs that are `step` elements apart, those that has(piece) says: all are loaded before the
/// first is stored.
template <class Formula, bool kBasic, int kCount, int kPieces, class Has>
__device__ void update_packs(const PreparedUpdate& u, const Pack<float, kCount> (&g)[kPieces], float* w,
                             float* const (&slots)[kSlots], std::int64_t at, int step, const Has& has) {
  using Elements = Pack<float, kCount>;
  Elements x[kPieces], s[kPieces][kSlots];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (!has(p)) continue;
    x[p] = *reinterpret_cast<const Elements*>(w + at + p * step);
#pragma unroll
    for (int k = 0; k < Formula::kSlots; ++k)
      s[p][k] = *reinterpret_cast<const Elements*>(slots[k] + at + p * step);
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (!has(p)) continue;
    apply_pack<Formula, kBasic>(u, g[p], x[p], s[p]);
    *reinterpret_cast<Elements*>(w + at + p * step) = x[p];
#pragma unroll
    for (int k = 0; k < Formula::kSlots; ++k)
      *reinterpret_cast<Elements*>(slots[k] + at + p * step) = s[p][k];
  }
}

}  // namespace braid::cuda
