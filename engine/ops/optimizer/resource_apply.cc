// TensorFlow's optimizer ops, whose hyper-parameters are scalar inputs (of the variable's type):
//   ResourceApplyGradientDescent(var, alpha, delta)
//   ResourceApplyMomentum, ResourceApplyKerasMomentum(var, accum, lr, grad, momentum)      use_nesterov
//   ResourceApplyAdagrad(var, accum, lr, grad), ...V2(var, accum, lr, epsilon, grad)       update_slots
//   ResourceApplyAdam(var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)  use_nesterov
//   ResourceSparseApplyMomentum(var, accum, lr, grad, indices, momentum), likewise the other sparse forms.
// Formulas are those of base/optim.h and engine/ops/optimizer/resource_apply_forms.h. Sparse forms update a
// row once for each occurrence of its index, in order.
#include <fmt/format.h>

#include "base/optim.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/apply_rows.h"
#include "engine/ops/optimizer/resource_apply_forms.h"
#include "engine/ops/optimizer/typed_apply.h"

namespace braid {
namespace {

using namespace resource_apply;

/// The update as the loops over a variable's elements call it.
struct ApplyUpdate {
  Update update;

  ApplyUpdate(const Form& form, const Settings& settings, const KernelArgs& a)
      : update(read_update(form, settings, [&](int input) { return a.in<float>(input)[0]; })) {}

  void operator()(std::span<float> w, std::span<const float> g, std::span<float* const> slots) const {
    if (update.formula == UpdateFormula::Shared) return apply_update(update.shared, w, g, slots);
    with_formula(update, [&]<class F>() {
      if constexpr (F::kSlots == 1) run<F>(update.shared, w.size(), w.data(), g.data(), slots[0]);
      if constexpr (F::kSlots == 2) run<F>(update.shared, w.size(), w.data(), g.data(), slots[0], slots[1]);
    });
  }

 private:
  template <class F>
  static void run(const PreparedUpdate& shared, std::size_t n, float* __restrict w, const float* __restrict g,
                  float* __restrict slot) {
    const PreparedUpdate u = shared;
    for (std::size_t i = 0; i < n; ++i) w[i] = F::apply(u, w[i], g[i], slot + i);
  }
  template <class F>
  static void run(const PreparedUpdate& shared, std::size_t n, float* __restrict w, const float* __restrict g,
                  float* __restrict s0, float* __restrict s1) {
    const PreparedUpdate u = shared;
    for (std::size_t i = 0; i < n; ++i) {
      float state[] = {s0[i], s1[i]};
      w[i] = F::apply(u, w[i], g[i], state);
      s0[i] = state[0];
      s1[i] = state[1];
    }
  }
};

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
    if (i != form.gradient) c.require_rank(i, 0);
  }
  require_one_float_type(c, form.slots + 1, form.indices);
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

PreparedKernel prepare_typed(const Form& form, const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  RowsOf where{.gradient = form.gradient, .indices = form.indices, .elements = shape.elements()};
  if (form.indices >= 0) where.rows = shape[0];
  if (where.rows != 0) where.width = where.elements / where.rows;
  return with_stored_type(c, [&]<class S, class T>() {
    return typed_apply_kernel<S, T>(
        c, form.slots, where, [form, settings = Settings(c.node.attrs)](const KernelArgs& a, auto body) {
          const auto update =
              read_typed_update<T>(form, settings, [&](int input) { return a.in<T>(input)[0]; });
          with_formula(update, [&]<class F>() { body.template operator()<F>(update.shared); });
        });
  });
}

PreparedKernel prepare_apply(const Form& form, const PrepareContext& c) {
  check_variable_types(c, form.slots, form.gradient);
  if (c.inputs[0].dtype != DType::Float32) return prepare_typed(form, c);
  const Settings settings(c.node.attrs);
  const std::int64_t elements = c.inputs[0].shape.elements();
  const auto slots = static_cast<std::size_t>(form.slots);
  if (form.indices < 0)
    return serial_kernel([form, settings, slots, elements, pool = &c.pool](const KernelArgs& a) {
      apply_dense(*pool, VariableRun(a, slots), elements, a.in<float>(form.gradient),
                  ApplyUpdate(form, settings, a));
    });
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(form.indices)];
  const std::int64_t n = index_info.shape[0];
  const std::int64_t rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : elements / rows;
  PreparedKernel kernel;
  kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
  kernel.run = [=, pool = &c.pool, dtype = index_info.dtype, place = place_of(c.node)](const KernelArgs& a) {
    const auto groups = IndexGroups::checked(place, dtype, a.inputs[form.indices], n, rows, a.scratch);
    apply_each_row(*pool, VariableRun(a, slots), width, groups, a.in<float>(form.gradient),
                   ApplyUpdate(form, settings, a));
  };
  return kernel;
}

}  // namespace

void register_resource_apply(OpRegistry& registry) {
  for (const Form& form : kForms)
    registry.add({.name = form.name,
                  .traits = updates(),
                  .min_inputs = form.inputs,
                  .max_inputs = form.inputs,
                  .infer = [&form](InferContext& c) { infer_apply(form, c); },
                  .no_gradient_reason = "it writes a variable",
                  .cpu = [&form](const PrepareContext& c) { return prepare_apply(form, c); },
                  .handles = std::vector<Access>(static_cast<std::size_t>(form.slots) + 1, Access::ReadWrite),
                  .side_effect = true});
}

}  // namespace braid
