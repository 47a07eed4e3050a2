// TensorFlow's optimizer ops, whose hyper-parameters are scalar inputs (float32 variables):
//   ResourceApplyGradientDescent(var, alpha, delta)
//   ResourceApplyMomentum, ResourceApplyKerasMomentum(var, accum, lr, grad, momentum)      use_nesterov
//   ResourceApplyAdagrad(var, accum, lr, grad), ...V2(var, accum, lr, epsilon, grad)       update_slots
//   ResourceApplyAdam(var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)
//   ResourceSparseApplyMomentum(var, accum, lr, grad, indices, momentum), likewise the other sparse forms.
// Formulas are those of base/optim.h; its missing cases are here: Keras' momentum
// m = momentum * m - lr * g, w += nesterov ? momentum * m - lr * g : m, and Adagrad's epsilon (added to the
// root) and frozen accumulator. Sparse forms update a row once for each occurrence of its index, in order.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/optim.h"
#include "engine/ops/common/apply_rows.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

enum class Formula { Shared, KerasMomentum, Adagrad };

/// One update with its hyper-parameters read from the inputs.
struct Update {
  Formula formula = Formula::Shared;
  PreparedUpdate shared = {};
  bool update_slots = true;

  void operator()(std::span<float> w, std::span<const float> g, std::span<float* const> slots) const {
    switch (formula) {
      case Formula::Shared:
        return apply_update(shared, w, g, slots);
      case Formula::KerasMomentum:
        return keras_momentum(w.size(), w.data(), g.data(), slots[0]);
      case Formula::Adagrad:
        return adagrad(w.size(), w.data(), g.data(), slots[0]);
    }
  }

 private:
  void keras_momentum(std::size_t n, float* w, const float* g, float* m) const {
    for (std::size_t i = 0; i < n; ++i) {
      const float step = shared.learning_rate * g[i];
      m[i] = shared.momentum * m[i] - step;
      w[i] += shared.nesterov ? shared.momentum * m[i] - step : m[i];
    }
  }
  void adagrad(std::size_t n, float* w, const float* g, float* a) const {
    for (std::size_t i = 0; i < n; ++i) {
      if (update_slots) a[i] += g[i] * g[i];
      w[i] -= shared.learning_rate * g[i] / (std::sqrt(a[i]) + shared.epsilon);
    }
  }
};

/// What an op's inputs are, by index; -1 where it has none.
struct Form {
  std::string name;
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

/// The attributes that decide a form's update.
struct Settings {
  bool use_nesterov, update_slots;
  explicit Settings(const AttrMap& attrs)
      : use_nesterov(attrs.get("use_nesterov", false)), update_slots(attrs.get("update_slots", true)) {}
};

float scalar(const KernelArgs& a, int input) { return input < 0 ? 0.0F : a.in<float>(input)[0]; }

Update read_update(const Form& form, const Settings& settings, const KernelArgs& a) {
  OptimizerSpec spec;
  spec.kind = form.kind;
  spec.momentum = scalar(a, form.momentum);
  spec.nesterov = settings.use_nesterov;
  spec.epsilon = scalar(a, form.epsilon);
  if (form.beta1_power >= 0) {
    spec.beta1 = scalar(a, form.learning_rate + 1);
    spec.beta2 = scalar(a, form.learning_rate + 2);
  }
  Update update{form.formula, prepare_update(spec, {.learning_rate = scalar(a, form.learning_rate)}),
                settings.update_slots};
  if (form.beta1_power >= 0)  // the powers are variables of the graph, not the step number
    update.shared.adam_learning_rate = update.shared.learning_rate *
                                       std::sqrt(1 - scalar(a, form.beta1_power + 1)) /
                                       (1 - scalar(a, form.beta1_power));
  return update;
}

void infer_apply(const Form& form, InferContext& c) {
  for (int i = 0; i <= form.slots; ++i) {
    if (c.dtype(i) != DType::Resource)
      c.fail(fmt::format("input {} must be a variable's handle, got {}", i, dtype_name(c.dtype(i))));
    merged_shape(c, 0, i);
  }
  for (int i = form.slots + 1; i < form.inputs; ++i) {
    if (i == form.indices) {
      c.require_rank(i, 1);
      require_index_dtype(c, i);
      continue;
    }
    require_dtype(c, i, {DType::Float32});
    if (i != form.gradient) c.require_rank(i, 0);
  }
  if (form.indices < 0) {
    merged_shape(c, 0, form.gradient);
  } else if (c.shape(0).has_rank()) {
    Shape expected = c.shape(0);
    Shape merged;
    if (expected.rank() == 0) c.fail("a scalar has no rows");
    expected.set_dim(0, c.shape(form.indices).has_rank() ? c.shape(form.indices)[0] : Shape::kUnknown);
    if (!merge_shapes(expected, c.shape(form.gradient), merged))
      c.fail(fmt::format("gradient of shape {} does not hold rows of shape {}",
                         c.shape(form.gradient).to_string(), c.shape(0).to_string()));
  }
}

PreparedKernel prepare_apply(const Form& form, const PrepareContext& c) {
  for (int i = 0; i <= form.slots; ++i)
    if (c.inputs[static_cast<std::size_t>(i)].dtype != DType::Float32)
      c.fail(fmt::format("input {} must hold float32", i));
  const Settings settings(c.node.attrs);
  if (settings.use_nesterov && form.kind == OptimizerKind::Adam)
    c.fail("use_nesterov is not supported for Adam");
  const std::int64_t elements = c.inputs[0].shape.elements();
  const auto slots = static_cast<std::size_t>(form.slots);
  if (form.indices < 0)
    return serial_kernel([=, pool = &c.pool](const KernelArgs& a) {
      apply_dense(*pool, VariableRun(a, slots), elements, a.in<float>(form.gradient),
                  read_update(form, settings, a));
    });
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(form.indices)];
  const std::int64_t n = index_info.shape[0];
  const std::int64_t rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : elements / rows;
  return with_index(form.name, index_info.dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
    kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      check_indices(place, a.in<I>(form.indices), n, rows);
      const IndexGroups groups(a.in<I>(form.indices), n, rows, a.scratch);
      apply_each_row(*pool, VariableRun(a, slots), width, groups, a.in<float>(form.gradient),
                     read_update(form, settings, a));
    };
    return kernel;
  });
}

}  // namespace

void register_resource_apply(OpRegistry& registry) {
  using enum OptimizerKind;
  const Form forms[] = {
      {"ResourceApplyGradientDescent", Sgd, 0, 3, 1, 2},
      {"ResourceApplyMomentum", Momentum, 1, 5, 2, 3, -1, 4},
      {"ResourceApplyKerasMomentum", Momentum, 1, 5, 2, 3, -1, 4, -1, -1, Formula::KerasMomentum},
      {"ResourceApplyAdagrad", Adagrad, 1, 4, 2, 3, -1, -1, -1, -1, Formula::Adagrad},
      {"ResourceApplyAdagradV2", Adagrad, 1, 5, 2, 4, -1, -1, 3, -1, Formula::Adagrad},
      {"ResourceApplyAdam", Adam, 2, 10, 5, 9, -1, -1, 8, 3},
      {"ResourceSparseApplyMomentum", Momentum, 1, 6, 2, 3, 4, 5},
      {"ResourceSparseApplyKerasMomentum", Momentum, 1, 6, 2, 3, 4, 5, -1, -1, Formula::KerasMomentum},
      {"ResourceSparseApplyAdagrad", Adagrad, 1, 5, 2, 3, 4, -1, -1, -1, Formula::Adagrad},
      {"ResourceSparseApplyAdagradV2", Adagrad, 1, 6, 2, 4, 5, -1, 3, -1, Formula::Adagrad},
  };
  for (const Form& form : forms)
    registry.add({.name = form.name,
                  .min_inputs = form.inputs,
                  .max_inputs = form.inputs,
                  .infer = [form](InferContext& c) { infer_apply(form, c); },
                  .no_gradient_reason = "it writes a variable",
                  .cpu = [form](const PrepareContext& c) { return prepare_apply(form, c); },
                  .handles = std::vector<Access>(static_cast<std::size_t>(form.slots) + 1, Access::ReadWrite),
                  .side_effect = true});
}

}  // namespace braid
