// TensorFlow's optimizer ops beside those of resource_apply_forms.h: what the inputs of each are, and the
// formulas, element by element (sources: the documentation of the ops):
//   RMSProp   ms += (1 - rho) (g^2 - ms);  mom = momentum mom + lr g / sqrt(ms + epsilon);  w -= mom
//             centered: also mg += (1 - rho) (g - mg), and ms - mg^2 under the root
//   Adadelta  a = rho a + (1 - rho) g^2;  d = sqrt(u + epsilon) / sqrt(a + epsilon) g
//             u = rho u + (1 - rho) d^2;  w -= lr d
//   Ftrl      a' = a + g^2;  z += g + 2 l2_shrinkage w - (a'^-p - a^-p) / lr w;  a = a'
//             w = |z| > l1 ? (sign(z) l1 - z) / (a^-p / lr + 2 l2) : 0
//   AdaMax    m += (1 - beta1) (g - m);  v = max(beta2 v, |g|);
//             w -= lr / (1 - beta1_power) m / (v + epsilon)
//   AMSGrad   Adam with the largest v so far under the root
//   AddSign   m = beta m + (1 - beta) g;  w -= lr (alpha + sign_decay sign(g) sign(m)) g
//   PowerSign the same, with exp(logbase sign_decay sign(g) sign(m))
//   Proximal  p = w - r g;  w = sign(p) max(|p| - r l1, 0) / (1 + r l2);
//             r is the rate of gradient descent, or of Adagrad: a += g^2, r = lr / sqrt(a)
// Shared by the kernels of CPU (resource_apply_adaptive.cc) and CUDA (.cu). Thread rule: pure functions.
#pragma once

#include <cmath>

#include "engine/ops/common/kernel_util.h"

namespace braid::adaptive {

inline constexpr int kMostHyper = 6;
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

struct AdaMax {
  static constexpr int kSlots = 2;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    const T power = h.at[0], lr = h.at[1], beta1 = h.at[2], beta2 = h.at[3], epsilon = h.at[4];
    T &m = slots[0], &v = slots[1];
    m += (1 - beta1) * (g - m);
    const T decayed = beta2 * v, size = std::abs(g);
    v = decayed > size ? decayed : size;
    return w - lr / (1 - power) * (m / (v + epsilon));
  }
};

struct AmsGrad {
  static constexpr int kSlots = 3;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    const T rate = h.at[2] * std::sqrt(1 - h.at[1]) / (1 - h.at[0]);
    const T beta1 = h.at[3], beta2 = h.at[4], epsilon = h.at[5];
    T &m = slots[0], &v = slots[1], &largest = slots[2];
    m += (1 - beta1) * (g - m);
    v += (1 - beta2) * (g * g - v);
    largest = v > largest ? v : largest;
    return w - rate * m / (std::sqrt(largest) + epsilon);
  }
};

/// sign(u) sign(v).
template <class T>
BRAID_INLINE T agreement(T u, T v) {
  const T sign_u = u > 0 ? T(1) : u < 0 ? T(-1) : T(0);
  return v > 0 ? sign_u : v < 0 ? -sign_u : T(0);
}

template <bool kPower>
struct SignStep {
  static constexpr int kSlots = 1;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    const T lr = h.at[0], base = h.at[1], decay = h.at[2], beta = h.at[3];
    T& m = slots[0];
    m = beta * m + (1 - beta) * g;
    const T agrees = decay * agreement(g, m);
    return w - lr * (kPower ? std::exp(base * agrees) : base + agrees) * g;
  }
};

template <bool kAdagrad>
struct Proximal {
  static constexpr int kSlots = kAdagrad ? 1 : 0;
  template <class T>
  BRAID_INLINE static T apply(const HyperOf<T>& h, T w, T g, T* slots) {
    T rate = h.at[0];
    if constexpr (kAdagrad) {
      slots[0] += g * g;
      rate /= std::sqrt(slots[0]);
    }
    const T next = w - rate * g, shrunk = std::abs(next) - rate * h.at[1];
    const T size = h.at[1] > 0 ? (shrunk > 0 ? shrunk : T(0)) : std::abs(next);
    return (next < 0 ? -size : size) / (1 + rate * h.at[2]);
  }
};

enum class Kind {
  RmsProp,
  CenteredRmsProp,
  Adadelta,
  Ftrl,
  FtrlShrinkage,
  AdaMax,
  AmsGrad,
  AddSign,
  PowerSign,
  ProximalSgd,
  ProximalAdagrad
};

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
    {"ResourceApplyAdaMax", Kind::AdaMax, 2, 5, false, false},
    {"ResourceApplyAdamWithAmsgrad", Kind::AmsGrad, 3, 6, false, false},
    {"ResourceApplyAddSign", Kind::AddSign, 1, 4, false, false},
    {"ResourceApplyPowerSign", Kind::PowerSign, 1, 4, false, false},
    {"ResourceApplyProximalGradientDescent", Kind::ProximalSgd, 0, 3, false, false},
    {"ResourceApplyProximalAdagrad", Kind::ProximalAdagrad, 1, 3, false, false},
    {"ResourceSparseApplyProximalGradientDescent", Kind::ProximalSgd, 0, 3, false, true},
    {"ResourceSparseApplyProximalAdagrad", Kind::ProximalAdagrad, 1, 3, false, true},
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
    case Kind::AdaMax:
      return body.template operator()<AdaMax>();
    case Kind::AmsGrad:
      return body.template operator()<AmsGrad>();
    case Kind::AddSign:
      return body.template operator()<SignStep<false>>();
    case Kind::PowerSign:
      return body.template operator()<SignStep<true>>();
    case Kind::ProximalSgd:
      return body.template operator()<Proximal<false>>();
    case Kind::ProximalAdagrad:
      return body.template operator()<Proximal<true>>();
  }
}

}  // namespace braid::adaptive
