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
  BRAID_INLINE static float apply(const PreparedUpdate& u, float w, float g, float* m) {
    const float step = u.learning_rate * g;
    m[0] = u.momentum * m[0] - step;
    return w + (u.nesterov ? u.momentum * m[0] - step : m[0]);
  }
};

/// Adagrad with an epsilon beside the root, and an accumulator that may stay as it is.
template <bool kUpdatesSlot>
struct AdagradEpsilon {
  static constexpr int kSlots = 1;
  BRAID_INLINE static float apply(const PreparedUpdate& u, float w, float g, float* a) {
    if (kUpdatesSlot) a[0] += g * g;
    return w - u.learning_rate * g / (std::sqrt(a[0]) + u.epsilon);
  }
};

enum class Formula { Shared, KerasMomentum, Adagrad };

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
  Formula formula = Formula::Shared;
};
inline constexpr int kMostInputs = 10;

inline constexpr Form kForms[] = {
    {"ResourceApplyGradientDescent", OptimizerKind::Sgd, 0, 3, 1, 2},
    {"ResourceApplyMomentum", OptimizerKind::Momentum, 1, 5, 2, 3, -1, 4},
    {"ResourceApplyKerasMomentum", OptimizerKind::Momentum, 1, 5, 2, 3, -1, 4, -1, -1,
     Formula::KerasMomentum},
    {"ResourceApplyAdagrad", OptimizerKind::Adagrad, 1, 4, 2, 3, -1, -1, -1, -1, Formula::Adagrad},
    {"ResourceApplyAdagradV2", OptimizerKind::Adagrad, 1, 5, 2, 4, -1, -1, 3, -1, Formula::Adagrad},
    {"ResourceApplyAdam", OptimizerKind::Adam, 2, 10, 5, 9, -1, -1, 8, 3},
    {"ResourceSparseApplyMomentum", OptimizerKind::Momentum, 1, 6, 2, 3, 4, 5},
    {"ResourceSparseApplyKerasMomentum", OptimizerKind::Momentum, 1, 6, 2, 3, 4, 5, -1, -1,
     Formula::KerasMomentum},
    {"ResourceSparseApplyAdagrad", OptimizerKind::Adagrad, 1, 5, 2, 3, 4, -1, -1, -1, Formula::Adagrad},
    {"ResourceSparseApplyAdagradV2", OptimizerKind::Adagrad, 1, 6, 2, 4, 5, -1, 3, -1, Formula::Adagrad},
};

/// The attributes that decide a form's update.
struct Settings {
  bool use_nesterov, update_slots;
  explicit Settings(const AttrMap& attrs)
      : use_nesterov(attrs.get("use_nesterov", false)), update_slots(attrs.get("update_slots", true)) {}
};

/// One update with its hyper-parameters.
struct Update {
  Formula formula;
  bool update_slots;
  PreparedUpdate shared;
};

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
  Update update{form.formula, settings.update_slots,
                optim::prepared(spec, {.learning_rate = scalar(form.learning_rate)})};
  if (form.beta1_power >= 0)  // the powers are variables of the graph, not the step number
    update.shared.adam_learning_rate = update.shared.learning_rate *
                                       std::sqrt(1 - scalar(form.beta1_power + 1)) /
                                       (1 - scalar(form.beta1_power));
  return update;
}

/// Calls body.operator()<Formula>() for the update's formula.
template <class Body>
BRAID_INLINE void with_formula(const Update& update, Body&& body) {
  switch (update.formula) {
    case Formula::Shared:
      return optim::with_formula(update.shared, body);
    case Formula::KerasMomentum:
      return body.template operator()<KerasMomentum>();
    case Formula::Adagrad:
      return update.update_slots ? body.template operator()<AdagradEpsilon<true>>()
                                 : body.template operator()<AdagradEpsilon<false>>();
  }
}

}  // namespace braid::resource_apply
