// TensorFlow's optimizer ops with two or three slots beside Adam: what the inputs of each are, and the
// formulas, element by element (sources: the documentation of the ops):
//   RMSProp   ms += (1 - rho) (g^2 - ms);  mom = momentum mom + lr g / sqrt(ms + epsilon);  w -= mom
//             centered: also mg += (1 - rho) (g - mg), and ms - mg^2 under the root
//   Adadelta  a = rho a + (1 - rho) g^2;  d = sqrt(u + epsilon) / sqrt(a + epsilon) g
//             u = rho u + (1 - rho) d^2;  w -= lr d
//   Ftrl      a' = a + g^2;  z += g + 2 l2_shrinkage w - (a'^-p - a^-p) / lr w;  a = a'
//             w = |z| > l1 ? (sign(z) l1 - z) / (a^-p / lr + 2 l2) : 0
// Shared by the kernels of CPU (resource_apply_adaptive.cc) and CUDA (.cu). Thread rule: pure functions.
#pragma once

#include <cmath>

#include "engine/ops/common/kernel_util.h"

namespace braid::adaptive {

inline constexpr int kMostHyper = 5;
inline constexpr int kMostSlots = 3;

/// The hyper-parameters in the order of the op's inputs.
template <class T>
struct HyperOf {
  T at[kMostHyper];
};
using Hyper = HyperOf<float>;

// F::apply(h, w, g, slots) gives the new weight and updates the slots.

template <bool kCentered>
struct RmsProp {
  static constexpr int kSlots = kCentered ? 3 : 2;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    const T lr = h.at[0], rho = h.at[1], momentum = h.at[2], epsilon = h.at[3];
    T &ms = slots[kCentered ? 1 : 0], &mom = slots[kCentered ? 2 : 1];
    ms += (1 - rho) * (g * g - ms);
    T variance = ms + epsilon;
    if (kCentered) {
      T& mg = slots[0];
      mg += (1 - rho) * (g - mg);
      variance -= mg * mg;
    }
    mom = momentum * mom + lr * g / std::sqrt(variance);
    return w - mom;
  }
};

struct Adadelta {
  static constexpr int kSlots = 2;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    const T lr = h.at[0], rho = h.at[1], epsilon = h.at[2];
    T &a = slots[0], &u = slots[1];
    a = rho * a + (1 - rho) * g * g;
    const T step = std::sqrt(u + epsilon) / std::sqrt(a + epsilon) * g;
    u = rho * u + (1 - rho) * step * step;
    return w - lr * step;
  }
};

template <class T>
BRAID_INLINE T ftrl_power(T a, T lr_power) {
  return lr_power == T(-0.5) ? std::sqrt(a) : std::pow(a, -lr_power);
}

template <bool kShrinks>
struct Ftrl {
  static constexpr int kSlots = 2;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    const T lr = h.at[0], l1 = h.at[1], l2 = h.at[2], shrinkage = kShrinks ? h.at[3] : T(0);
    const T lr_power = h.at[kShrinks ? 4 : 3];
    T &a = slots[0], &z = slots[1];
    const T raised = a + g * g, root = ftrl_power(raised, lr_power);
    z += g + 2 * shrinkage * w - (root - ftrl_power(a, lr_power)) / lr * w;
    a = raised;
    return std::abs(z) > l1 ? ((z < 0 ? -l1 : l1) - z) / (root / lr + 2 * l2) : T(0);
  }
};

enum class Kind { RmsProp, CenteredRmsProp, Adadelta, Ftrl, FtrlShrinkage };

/// Inputs: variable, slots, then (gradient, indices) before or behind the hyper-parameters.
struct Form {
  const char* name;
  Kind kind;
  int slots;
  int hyper;
  bool gradient_first;
  bool sparse;

  constexpr int gradient() const { return slots + 1 + (gradient_first ? 0 : hyper); }
  constexpr int indices() const { return gradient() + 1; }
  constexpr int first_hyper() const { return slots + 1 + (gradient_first ? (sparse ? 2 : 1) : 0); }
  constexpr int inputs() const { return slots + 1 + hyper + (sparse ? 2 : 1); }
};

inline constexpr Form kForms[] = {
    {"ResourceApplyRMSProp", Kind::RmsProp, 2, 4, false, false},
    {"ResourceApplyCenteredRMSProp", Kind::CenteredRmsProp, 3, 4, false, false},
    {"ResourceApplyAdadelta", Kind::Adadelta, 2, 3, false, false},
    {"ResourceApplyFtrl", Kind::Ftrl, 2, 4, true, false},
    {"ResourceApplyFtrlV2", Kind::FtrlShrinkage, 2, 5, true, false},
    {"ResourceSparseApplyRMSProp", Kind::RmsProp, 2, 4, false, true},
    {"ResourceSparseApplyCenteredRMSProp", Kind::CenteredRmsProp, 3, 4, false, true},
    {"ResourceSparseApplyAdadelta", Kind::Adadelta, 2, 3, false, true},
    {"ResourceSparseApplyFtrl", Kind::Ftrl, 2, 4, true, true},
    {"ResourceSparseApplyFtrlV2", Kind::FtrlShrinkage, 2, 5, true, true},
};

/// Calls body.operator()<F>() for the formula.
template <class Body>
BRAID_INLINE void with_formula(Kind kind, Body&& body) {
  switch (kind) {
    case Kind::RmsProp:
      return body.template operator()<RmsProp<false>>();
    case Kind::CenteredRmsProp:
      return body.template operator()<RmsProp<true>>();
    case Kind::Adadelta:
      return body.template operator()<Adadelta>();
    case Kind::Ftrl:
      return body.template operator()<Ftrl<false>>();
    case Kind::FtrlShrinkage:
      return body.template operator()<Ftrl<true>>();
  }
}

}  // namespace braid::adaptive
