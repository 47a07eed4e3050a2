// The update formulas of base/optim.h for one element: one definition for the loops of the CPU (optim.cc) and
// for CUDA kernels, and how a step's parameters become a PreparedUpdate. A formula is a class with kSlots
// slots an element and
//   T apply(u, w, g, slots): the new weight; `w` is decayed already, `g` is g' of base/optim.h; updates the
//   slots.
// T is float, with a PreparedUpdate, or another type with its own rates under the same names.
// Thread rule: pure functions.
#pragma once

#include <cmath>

#include "base/optim.h"

#ifdef __CUDACC__
#define BRAID_OPTIM __host__ __device__ __forceinline__
#else
#define BRAID_OPTIM __attribute__((always_inline)) inline
#endif

namespace braid::optim {

inline constexpr int kMostSlots = 3;
/// Squares of a row are added up in so many sums, element i in sum i mod kSquareSums.
inline constexpr int kSquareSums = 16;

struct Sgd {
  static constexpr int kSlots = 0;
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T*) {
    return w - u.learning_rate * g;
  }
};

struct Momentum {
  static constexpr int kSlots = 1;
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T* m) {
    m[0] = u.momentum * m[0] + g;
    return w - u.learning_rate * m[0];
  }
};

struct Nesterov {
  static constexpr int kSlots = 1;
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T* m) {
    m[0] = u.momentum * m[0] + g;
    return w - u.learning_rate * (g + u.momentum * m[0]);
  }
};

struct Adagrad {
  static constexpr int kSlots = 1;
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T* a) {
    a[0] += g * g;
    return w - u.learning_rate * g / (std::sqrt(a[0]) + u.adagrad_epsilon);
  }
};

struct Adam {
  static constexpr int kSlots = 2;
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T* mv) {
    mv[0] += u.one_minus_beta1 * (g - mv[0]);
    mv[1] += u.one_minus_beta2 * (g * g - mv[1]);
    return w - u.adam_learning_rate * mv[0] / (std::sqrt(mv[1]) + u.epsilon);
  }
};

/// a^-learning_rate_power, which is a root as a rule.
template <bool kIsRoot, class T>
BRAID_OPTIM T ftrl_root(T a, T learning_rate_power) {
  if constexpr (kIsRoot)
    return std::sqrt(a);
  else
    return std::pow(a, -learning_rate_power);
}

template <bool kIsRoot>
struct Ftrl {
  static constexpr int kSlots = 2;
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T* az) {
    const T raised = az[0] + g * g, root = ftrl_root<kIsRoot>(raised, u.learning_rate_power);
    const T before = ftrl_root<kIsRoot>(az[0], u.learning_rate_power);
    az[1] += g + 2 * u.l2_shrinkage * w - (root - before) / u.learning_rate * w;
    az[0] = raised;
    const T z = az[1], edge = z < 0 ? -u.l1 : u.l1;
    return std::abs(z) > u.l1 ? (edge - z) / (root / u.learning_rate + 2 * u.l2) : T(0);
  }
};

/// Slots: s, then h where centered, then m where there is momentum.
template <bool kIsCentered, bool kHasMomentum>
struct RmsProp {
  static constexpr int kSlots = 1 + (kIsCentered ? 1 : 0) + (kHasMomentum ? 1 : 0);
  template <class U, class T>
  BRAID_OPTIM static T apply(const U& u, T w, T g, T* s) {
    s[0] += u.one_minus_rho * (g * g - s[0]);
    T square = s[0] + u.epsilon;
    if constexpr (kIsCentered) {
      s[1] += u.one_minus_rho * (g - s[1]);
      square -= s[1] * s[1];
    }
    T step = u.learning_rate * g / std::sqrt(square);
    if constexpr (kHasMomentum) {
      T& m = s[kSlots - 1];
      step = m = u.momentum * m + step;
    }
    return w - step;
  }
};

/// A weight and g * grad_scale as a formula takes them.
template <class T>
struct Prepared {
  T w, g;
};
template <class U, class T>
BRAID_OPTIM Prepared<T> surrounded(const U& u, T w, T g) {
  if (u.clip_value > 0) g = g > u.clip_value ? u.clip_value : g < -u.clip_value ? -u.clip_value : g;
  if (u.added_l2 != 0) g += u.added_l2 * w;
  if (u.added_l1 != 0) g += w > 0 ? u.added_l1 : w < 0 ? -u.added_l1 : T(0);
  return {u.decay != 0 ? w - u.decay * w : w, g};
}

/// Calls body.operator()<Formula>() for the kind. REQUIRES: the kind is one of the first four.
template <class U, class Body>
BRAID_OPTIM void with_basic_formula(const U& u, Body&& body) {
  switch (u.kind) {
    case OptimizerKind::Sgd:
      return body.template operator()<Sgd>();
    case OptimizerKind::Momentum:
      return u.nesterov ? body.template operator()<Nesterov>() : body.template operator()<Momentum>();
    case OptimizerKind::Adagrad:
      return body.template operator()<Adagrad>();
    case OptimizerKind::Adam:
      return body.template operator()<Adam>();
    case OptimizerKind::Ftrl:
    case OptimizerKind::RmsProp:
    case OptimizerKind::Adafactor:
    case OptimizerKind::Adam8Bit:
      return;
  }
}

/// The same for all kinds.
template <class U, class Body>
BRAID_OPTIM void with_formula(const U& u, Body&& body) {
  if (u.kind == OptimizerKind::Ftrl)
    return u.learning_rate_power == -0.5F ? body.template operator()<Ftrl<true>>()
                                          : body.template operator()<Ftrl<false>>();
  if (u.kind != OptimizerKind::RmsProp) return with_basic_formula(u, body);
  if (u.momentum > 0)
    return u.centered ? body.template operator()<RmsProp<true, true>>()
                      : body.template operator()<RmsProp<false, true>>();
  return u.centered ? body.template operator()<RmsProp<true, false>>()
                    : body.template operator()<RmsProp<false, false>>();
}

/// Of a row of `n` elements, whose sums become one by halves.
BRAID_OPTIM float mean_square(float (&sums)[kSquareSums], float n) {
  for (int half = kSquareSums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0] / n;
}

/// base^n by squaring: only multiplications, so the same on every machine (std::pow's last bit is not).
BRAID_OPTIM double power(double base, std::uint64_t n) {
  double result = 1;
  for (; n != 0; n >>= 1, base *= base)
    if (n & 1) result *= base;
  return result;
}

/// Adam's lr_t, or the learning rate.
BRAID_OPTIM float effective_rate(const OptimizerSpec& spec, const UpdateParams& params) {
  const float rate = params.learning_rate * spec.learning_rate_factor;
  if (spec.kind != OptimizerKind::Adam) return rate;
  const std::uint64_t t = params.step + 1;
  return static_cast<float>(rate * std::sqrt(1 - power(static_cast<double>(spec.beta2), t)) /
                            (1 - power(static_cast<double>(spec.beta1), t)));
}

BRAID_OPTIM std::size_t slots_of(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerKind::Sgd:
      return 0;
    case OptimizerKind::Momentum:
    case OptimizerKind::Adagrad:
      return 1;
    case OptimizerKind::Adam:
    case OptimizerKind::Ftrl:
      return 2;
    case OptimizerKind::RmsProp:
      return 1 + (spec.centered ? 1 : 0) + (spec.momentum > 0 ? 1 : 0);
    case OptimizerKind::Adafactor:
    case OptimizerKind::Adam8Bit:
      return 0;
  }
  return 0;
}

BRAID_OPTIM PreparedUpdate prepared(const OptimizerSpec& spec, const UpdateParams& params) {
  PreparedUpdate u{};
  u.kind = spec.kind;
  u.nesterov = spec.nesterov;
  u.basic = is_basic(spec);
  u.slots = slots_of(spec);
  u.learning_rate = params.learning_rate * spec.learning_rate_factor;
  u.adam_learning_rate = effective_rate(spec, params);
  u.grad_scale = params.grad_scale;
  u.decay = u.learning_rate * spec.weight_decay;
  u.momentum = spec.momentum;
  u.one_minus_beta1 = 1.0F - spec.beta1;
  u.one_minus_beta2 = 1.0F - spec.beta2;
  u.epsilon = spec.epsilon;
  u.one_minus_rho = 1.0F - spec.rho;
  u.centered = spec.centered;
  u.learning_rate_power = spec.learning_rate_power;
  u.l2_shrinkage = spec.l2_shrinkage;
  u.l1 = spec.l1;
  u.l2 = spec.l2;
  u.clip_value = spec.clip_value;
  u.skip_nan = spec.skip_nan;
  const bool adds = spec.kind != OptimizerKind::Ftrl;
  u.added_l1 = adds ? spec.l1 : 0.0F;
  u.added_l2 = adds ? spec.l2 : 0.0F;
  u.adagrad_epsilon = spec.adagrad_epsilon;
  u.row_wise = spec.row_wise;
  return u;
}

}  // namespace braid::optim
