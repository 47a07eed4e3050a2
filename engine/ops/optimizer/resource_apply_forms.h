// TensorFlow's optimizer ops whose hyper-parameters are scalar inputs: what the inputs of each are, how they
// make an update, and the formulas that base/optim_formulas.h does not have. Shared by the kernels of CPU
// (resource_apply.cc) and CUDA (resource_apply.cu). Thread rule: pure functions.
#pragma once

#include <cmath>

#include "base/optim_formulas.h"
#include "engine/ops/common/kernel_util.h"

namespace braid::resource_apply {

/// m = momentum * m - lr * g, w += nesterov ? momentum * m - lr * g : m.
struct KerasMomentum {
  static constexpr int kSlots = 1;
  template <class U, class T>
  BRAID_INLINE static T apply(const U& u, T w, T g, T* m) {
    const T step = u.learning_rate * g;
    m[0] = u.momentum * m[0] - step;
    return w + (u.nesterov ? u.momentum * m[0] - step : m[0]);
  }
};

/// Adagrad with an epsilon beside the root, and an accumulator that may stay as it is.
template <bool kUpdatesSlot>
struct AdagradEpsilon {
  static constexpr int kSlots = 1;
  template <class U, class T>
  BRAID_INLINE static T apply(const U& u, T w, T g, T* a) {
    if (kUpdatesSlot) a[0] += g * g;
    return w - u.learning_rate * g / (std::sqrt(a[0]) + u.epsilon);
  }
};

/// Adam whose step looks one gradient ahead of the mean.
struct AdamNesterov {
  static constexpr int kSlots = 2;
  template <class U, class T>
  BRAID_INLINE static T apply(const U& u, T w, T g, T* mv) {
    mv[0] += u.one_minus_beta1 * (g - mv[0]);
    mv[1] += u.one_minus_beta2 * (g * g - mv[1]);
    const T ahead = (1 - u.one_minus_beta1) * mv[0] + u.one_minus_beta1 * g;
    return w - u.adam_learning_rate * ahead / (std::sqrt(mv[1]) + u.epsilon);
  }
};

enum class UpdateFormula { Shared, KerasMomentum, Adagrad, AdamNesterov };

/// What an op's inputs are, by index; -1 where it has none.
struct Form {
  const char* name;
  OptimizerKind kind;
  int slots;
  int inputs;
  int learning_rate;
  int gradient;
  int indices = -1;
  int momentum = -1;
  int epsilon = -1;
  int beta1_power = -1;  // then beta2_power; beta1 and beta2 stand behind the learning rate
  UpdateFormula formula = UpdateFormula::Shared;
};
inline constexpr int kMostInputs = 10;

inline constexpr Form kForms[] = {
    {"ResourceApplyGradientDescent", OptimizerKind::Sgd, 0, 3, 1, 2},
    {"ResourceApplyMomentum", OptimizerKind::Momentum, 1, 5, 2, 3, -1, 4},
    {"ResourceApplyKerasMomentum", OptimizerKind::Momentum, 1, 5, 2, 3, -1, 4, -1, -1,
     UpdateFormula::KerasMomentum},
    {"ResourceApplyAdagrad", OptimizerKind::Adagrad, 1, 4, 2, 3, -1, -1, -1, -1, UpdateFormula::Adagrad},
    {"ResourceApplyAdagradV2", OptimizerKind::Adagrad, 1, 5, 2, 4, -1, -1, 3, -1, UpdateFormula::Adagrad},
    {"ResourceApplyAdam", OptimizerKind::Adam, 2, 10, 5, 9, -1, -1, 8, 3},
    {"ResourceSparseApplyMomentum", OptimizerKind::Momentum, 1, 6, 2, 3, 4, 5},
    {"ResourceSparseApplyKerasMomentum", OptimizerKind::Momentum, 1, 6, 2, 3, 4, 5, -1, -1,
     UpdateFormula::KerasMomentum},
    {"ResourceSparseApplyAdagrad", OptimizerKind::Adagrad, 1, 5, 2, 3, 4, -1, -1, -1, UpdateFormula::Adagrad},
    {"ResourceSparseApplyAdagradV2", OptimizerKind::Adagrad, 1, 6, 2, 4, 5, -1, 3, -1,
     UpdateFormula::Adagrad},
};

/// The attributes that decide a form's update.
struct Settings {
  bool use_nesterov, update_slots;
  explicit Settings(const AttrMap& attrs)
      : use_nesterov(attrs.get("use_nesterov", false)), update_slots(attrs.get("update_slots", true)) {}
};

/// One update with its hyper-parameters.
struct Update {
  UpdateFormula formula;
  bool update_slots;
  PreparedUpdate shared;
};

/// The same in T.
template <class T>
struct TypedUpdate {
  struct Rates {
    OptimizerKind kind;
    bool nesterov;
    T learning_rate, adam_learning_rate, momentum, one_minus_beta1, one_minus_beta2, epsilon, adagrad_epsilon;
  };
  UpdateFormula formula;
  bool update_slots;
  Rates shared;
};

BRAID_INLINE UpdateFormula formula_of(const Form& form, const Settings& settings) {
  return form.kind == OptimizerKind::Adam && settings.use_nesterov ? UpdateFormula::AdamNesterov
                                                                   : form.formula;
}

/// The update of these inputs; read(i) is the scalar in input i.
template <class Read>
BRAID_INLINE Update read_update(const Form& form, const Settings& settings, const Read& read) {
  const auto scalar = [&](int input) { return input < 0 ? 0.0F : read(input); };
  OptimizerSpec spec;
  spec.kind = form.kind;
  spec.momentum = scalar(form.momentum);
  spec.nesterov = settings.use_nesterov;
  spec.epsilon = scalar(form.epsilon);
  if (form.beta1_power >= 0) {
    spec.beta1 = scalar(form.learning_rate + 1);
    spec.beta2 = scalar(form.learning_rate + 2);
  }
  Update update{formula_of(form, settings), settings.update_slots,
                optim::prepared(spec, {.learning_rate = scalar(form.learning_rate)})};
  if (form.beta1_power >= 0)  // the powers are variables of the graph, not the step number
    update.shared.adam_learning_rate = update.shared.learning_rate *
                                       std::sqrt(1 - scalar(form.beta1_power + 1)) /
                                       (1 - scalar(form.beta1_power));
  return update;
}

/// read(i) gives a T.
template <class T, class Read>
TypedUpdate<T> read_typed_update(const Form& form, const Settings& settings, const Read& read) {
  const auto scalar = [&](int input) { return input < 0 ? T(0) : read(input); };
  TypedUpdate<T> update{formula_of(form, settings), settings.update_slots, {}};
  auto& u = update.shared;
  u.kind = form.kind;
  u.nesterov = settings.use_nesterov;
  u.learning_rate = u.adam_learning_rate = scalar(form.learning_rate);
  u.momentum = scalar(form.momentum);
  u.epsilon = scalar(form.epsilon);
  if (form.beta1_power >= 0) {
    u.one_minus_beta1 = 1 - scalar(form.learning_rate + 1);
    u.one_minus_beta2 = 1 - scalar(form.learning_rate + 2);
    u.adam_learning_rate *= std::sqrt(1 - scalar(form.beta1_power + 1)) / (1 - scalar(form.beta1_power));
  }
  return update;
}

/// Calls body.operator()<Formula>() for the update's formula.
template <class U, class Body>
BRAID_INLINE void with_formula(const U& update, Body&& body) {
  switch (update.formula) {
    case UpdateFormula::Shared:
      return optim::with_basic_formula(update.shared, body);
    case UpdateFormula::KerasMomentum:
      return body.template operator()<KerasMomentum>();
    case UpdateFormula::Adagrad:
      return update.update_slots ? body.template operator()<AdagradEpsilon<true>>()
                                 : body.template operator()<AdagradEpsilon<false>>();
    case UpdateFormula::AdamNesterov:
      return body.template operator()<AdamNesterov>();
  }
}

}  // namespace braid::resource_apply
