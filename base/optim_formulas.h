// The update formulas of base/optim.h for one element: one definition for the loops of the CPU (optim.cc) and
// for CUDA kernels, and how a step's parameters become a PreparedUpdate. A formula is a class with kSlots
// slots an element and
//   T apply(u, w, g, slots): the new weight; `w` is decayed already, `g` scaled; updates the slots.
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

inline constexpr int kMostSlots = 2;

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
    return w - u.learning_rate * g / std::sqrt(a[0]);
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

/// Calls body.operator()<Formula>() for the kind. REQUIRES: the kind is one of the enumerators.
template <class U, class Body>
BRAID_OPTIM void with_formula(const U& u, Body&& body) {
  switch (u.kind) {
    case OptimizerKind::Sgd:
      return body.template operator()<Sgd>();
    case OptimizerKind::Momentum:
      return u.nesterov ? body.template operator()<Nesterov>() : body.template operator()<Momentum>();
    case OptimizerKind::Adagrad:
      return body.template operator()<Adagrad>();
    case OptimizerKind::Adam:
      return body.template operator()<Adam>();
  }
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
  if (spec.kind != OptimizerKind::Adam) return params.learning_rate;
  const std::uint64_t t = params.step + 1;
  return static_cast<float>(params.learning_rate * std::sqrt(1 - power(static_cast<double>(spec.beta2), t)) /
                            (1 - power(static_cast<double>(spec.beta1), t)));
}

BRAID_OPTIM PreparedUpdate prepared(const OptimizerSpec& spec, const UpdateParams& params) {
  PreparedUpdate u{};
  u.kind = spec.kind;
  u.nesterov = spec.nesterov;
  u.slots = spec.kind == OptimizerKind::Adam ? 2 : spec.kind == OptimizerKind::Sgd ? 0 : 1;
  u.learning_rate = params.learning_rate;
  u.adam_learning_rate = effective_rate(spec, params);
  u.grad_scale = params.grad_scale;
  u.decay = params.learning_rate * spec.weight_decay;
  u.momentum = spec.momentum;
  u.one_minus_beta1 = 1.0F - spec.beta1;
  u.one_minus_beta2 = 1.0F - spec.beta2;
  u.epsilon = spec.epsilon;
  return u;
}

}  // namespace braid::optim
