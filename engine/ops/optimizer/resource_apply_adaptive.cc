// TensorFlow's optimizer ops beside those of resource_apply.cc (hyper-parameters are inputs of the variable's
// type), by the formulas of adaptive_forms.h:
//   ResourceApplyRMSProp(var, ms, mom, lr, rho, momentum, epsilon, grad)
//   ResourceApplyCenteredRMSProp(var, mg, ms, mom, lr, rho, momentum, epsilon, grad)
//   ResourceApplyAdadelta(var, accum, accum_update, lr, rho, epsilon, grad)
//   ResourceApplyFtrl(var, accum, linear, grad, lr, l1, l2, lr_power), V2(..., l2, l2_shrinkage, lr_power)
//   ResourceApplyAdaMax(var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad)
//   ResourceApplyAdamWithAmsgrad(var, m, v, vhat, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)
//   ResourceApplyAddSign, ResourceApplyPowerSign(var, m, lr, alpha or logbase, sign_decay, beta, grad)
//   ResourceApplyProximalGradientDescent(var, alpha, l1, l2, delta)
//   ResourceApplyProximalAdagrad(var, accum, lr, l1, l2, grad)
// Sparse forms take indices behind the gradient and update a row once for each occurrence of its index, in
// order.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/adaptive_forms.h"
#include "engine/ops/optimizer/apply_rows.h"
#include "engine/ops/optimizer/typed_apply.h"

namespace braid {
namespace {

using namespace adaptive;

void infer(const Form& form, InferContext& c) {
  for (int i = 0; i <= form.slots; ++i) {
    if (c.dtype(i) != DType::Resource)
      c.fail(fmt::format("input {} must be a variable's handle, got {}", i, dtype_name(c.dtype(i))));
    merged_shape(c, 0, i);
  }
  for (int i = form.first_hyper(); i < form.first_hyper() + form.hyper; ++i) c.require_rank(i, 0);
  require_one_float_type(c, form.slots + 1, form.sparse ? form.indices() : -1);
  if (c.attr("multiply_linear_by_lr", false)) c.fail("multiply_linear_by_lr is not supported");
  if (!form.sparse) {
    merged_shape(c, 0, form.gradient());
    return;
  }
  c.require_rank(form.indices(), 1);
  require_index_dtype(c, form.indices());
  Shape expected = c.shape(0), merged;
  if (!expected.has_rank()) return;
  if (expected.rank() == 0) c.fail("a scalar has no rows");
  expected.set_dim(0, c.shape(form.indices()).has_rank() ? c.shape(form.indices())[0] : Shape::kUnknown);
  if (!merge_shapes(expected, c.shape(form.gradient()), merged))
    c.fail(fmt::format("gradient of shape {} does not hold rows of shape {}",
                       c.shape(form.gradient()).to_string(), c.shape(0).to_string()));
}

/// A form's formula with its hyper-parameters read from the inputs.
struct Update {
  Kind kind;
  Hyper hyper;

  Update(const Form& form, const KernelArgs& a) : kind(form.kind), hyper{} {
    for (int i = 0; i < form.hyper; ++i) hyper.at[i] = *a.in<float>(form.first_hyper() + i);
  }

  void operator()(std::span<float> w, std::span<const float> g, std::span<float* const> slots) const {
    with_formula(kind, [&]<class F>() { run<F>(hyper, w, g, slots); });
  }

 private:
  template <class F>
  static void run(const Hyper& h, std::span<float> w, std::span<const float> g,
                  std::span<float* const> slots) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      float state[F::kSlots > 0 ? F::kSlots : 1];
      for (std::size_t s = 0; s < F::kSlots; ++s) state[s] = slots[s][i];
      w[i] = F::apply(h, w[i], g[i], state);
      for (std::size_t s = 0; s < F::kSlots; ++s) slots[s][i] = state[s];
    }
  }
};

PreparedKernel prepare_typed(const Form& form, const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  RowsOf where{.gradient = form.gradient(), .elements = shape.elements()};
  if (form.sparse) where.indices = form.indices();
  if (form.sparse) where.rows = shape[0];
  if (where.rows != 0) where.width = where.elements / where.rows;
  return with_stored_type(c, [&]<class S, class T>() {
    return typed_apply_kernel<S, T>(c, form.slots, where, [form](const KernelArgs& a, auto body) {
      HyperOf<T> hyper{};
      for (int i = 0; i < form.hyper; ++i) hyper.at[i] = *a.in<T>(form.first_hyper() + i);
      with_formula(form.kind, [&]<class F>() { body.template operator()<F>(hyper); });
    });
  });
}

PreparedKernel prepare(const Form& form, const PrepareContext& c) {
  check_variable_types(c, form.slots, form.gradient());
  if (c.inputs[0].dtype != DType::Float32) return prepare_typed(form, c);
  const std::int64_t elements = c.inputs[0].shape.elements();
  const auto slots = static_cast<std::size_t>(form.slots);
  if (!form.sparse)
    return serial_kernel([=, pool = &c.pool](const KernelArgs& a) {
      apply_dense(*pool, VariableRun(a, slots), elements, a.in<float>(form.gradient()), Update(form, a));
    });
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(form.indices())];
  const std::int64_t n = index_info.shape[0], rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : elements / rows;
  PreparedKernel kernel;
  kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
  kernel.run = [=, pool = &c.pool, dtype = index_info.dtype, place = place_of(c.node)](const KernelArgs& a) {
    const auto groups = IndexGroups::checked(place, dtype, a.inputs[form.indices()], n, rows, a.scratch);
    apply_each_row(*pool, VariableRun(a, slots), width, groups, a.in<float>(form.gradient()),
                   Update(form, a));
  };
  return kernel;
}

}  // namespace

void register_resource_apply_adaptive(OpRegistry& registry) {
  for (const Form& form : kForms)
    registry.add({.name = form.name,
                  .traits = updates(),
                  .min_inputs = form.inputs(),
                  .max_inputs = form.inputs(),
                  .infer = [&form](InferContext& c) { infer(form, c); },
                  .no_gradient_reason = "it writes a variable",
                  .cpu = [&form](const PrepareContext& c) { return prepare(form, c); },
                  .handles = std::vector<Access>(static_cast<std::size_t>(form.slots) + 1, Access::ReadWrite),
                  .side_effect = true});
}

}  // namespace braid
