// TensorFlow's optimizer ops with two or three slots beside Adam (float32 variables; hyper-parameters are
// inputs):
//   ResourceApplyRMSProp(var, ms, mom, lr, rho, momentum, epsilon, grad)
//     ms += (1 - rho) (g^2 - ms);  mom = momentum mom + lr g / sqrt(ms + epsilon);  w -= mom
//   ResourceApplyCenteredRMSProp(var, mg, ms, mom, lr, rho, momentum, epsilon, grad)
//     also mg += (1 - rho) (g - mg), and ms - mg^2 under the root
//   ResourceApplyAdadelta(var, accum, accum_update, lr, rho, epsilon, grad)
//     a = rho a + (1 - rho) g^2;  d = sqrt(u + epsilon) / sqrt(a + epsilon) g;  u = rho u + (1 - rho) d^2;  w
//     -= lr d
//   ResourceApplyFtrl(var, accum, linear, grad, lr, l1, l2, lr_power), V2(..., l2, l2_shrinkage, lr_power)
//     a' = a + g^2;  z += g + 2 l2_shrinkage w - (a'^-p - a^-p) / lr w;  a = a'
//     w = |z| > l1 ? (sign(z) l1 - z) / (a^-p / lr + 2 l2) : 0
// Sources: the documentation of the ops. Sparse forms take indices behind the gradient and update a row once
// for each occurrence of its index, in order.
#include <fmt/format.h>

#include <cmath>

#include "engine/ops/common/apply_rows.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr int kMaxHyper = 5;
using Hyper = std::array<float, kMaxHyper>;
using Formula = void (*)(const Hyper& h, std::span<float> w, std::span<const float> g,
                         std::span<float* const> slots);

template <bool kCentered>
void rms_prop(const Hyper& h, std::span<float> w, std::span<const float> g, std::span<float* const> slots) {
  const float lr = h[0], rho = h[1], momentum = h[2], epsilon = h[3];
  float* mg = kCentered ? slots[0] : nullptr;
  float* ms = slots[kCentered ? 1 : 0];
  float* mom = slots[kCentered ? 2 : 1];
  for (std::size_t i = 0; i < w.size(); ++i) {
    ms[i] += (1 - rho) * (g[i] * g[i] - ms[i]);
    float variance = ms[i] + epsilon;
    if (kCentered) {
      mg[i] += (1 - rho) * (g[i] - mg[i]);
      variance -= mg[i] * mg[i];
    }
    mom[i] = momentum * mom[i] + lr * g[i] / std::sqrt(variance);
    w[i] -= mom[i];
  }
}

void adadelta(const Hyper& h, std::span<float> w, std::span<const float> g, std::span<float* const> slots) {
  const float lr = h[0], rho = h[1], epsilon = h[2];
  float *a = slots[0], *u = slots[1];
  for (std::size_t i = 0; i < w.size(); ++i) {
    a[i] = rho * a[i] + (1 - rho) * g[i] * g[i];
    const float step = std::sqrt(u[i] + epsilon) / std::sqrt(a[i] + epsilon) * g[i];
    w[i] -= lr * step;
    u[i] = rho * u[i] + (1 - rho) * step * step;
  }
}

float power(float a, float lr_power) { return lr_power == -0.5F ? std::sqrt(a) : std::pow(a, -lr_power); }

template <bool kShrinks>
void ftrl(const Hyper& h, std::span<float> w, std::span<const float> g, std::span<float* const> slots) {
  const float lr = h[0], l1 = h[1], l2 = h[2], shrinkage = kShrinks ? h[3] : 0.0F;
  const float lr_power = h[kShrinks ? 4 : 3];
  float *a = slots[0], *z = slots[1];
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float raised = a[i] + g[i] * g[i], root = power(raised, lr_power);
    z[i] += g[i] + 2 * shrinkage * w[i] - (root - power(a[i], lr_power)) / lr * w[i];
    w[i] = std::abs(z[i]) > l1 ? (std::copysign(l1, z[i]) - z[i]) / (root / lr + 2 * l2) : 0.0F;
    a[i] = raised;
  }
}

/// Inputs: variable, slots, then (gradient, indices) before or behind the hyper-parameters.
struct Form {
  std::string name;
  int slots;
  int hyper;
  bool gradient_first;
  bool sparse;
  Formula formula;

  int gradient() const { return slots + 1 + (gradient_first ? 0 : hyper); }
  int indices() const { return gradient() + 1; }
  int first_hyper() const { return slots + 1 + (gradient_first ? (sparse ? 2 : 1) : 0); }
  int inputs() const { return slots + 1 + hyper + (sparse ? 2 : 1); }
};

void infer(const Form& form, InferContext& c) {
  for (int i = 0; i <= form.slots; ++i) {
    if (c.dtype(i) != DType::Resource)
      c.fail(fmt::format("input {} must be a variable's handle, got {}", i, dtype_name(c.dtype(i))));
    merged_shape(c, 0, i);
  }
  for (int i = form.first_hyper(); i < form.first_hyper() + form.hyper; ++i) {
    require_dtype(c, i, {DType::Float32});
    c.require_rank(i, 0);
  }
  if (c.attr("multiply_linear_by_lr", false)) c.fail("multiply_linear_by_lr is not supported");
  require_dtype(c, form.gradient(), {DType::Float32});
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
  Formula formula;
  Hyper hyper{};

  Update(const Form& form, const KernelArgs& a) : formula(form.formula) {
    for (int i = 0; i < form.hyper; ++i)
      hyper[static_cast<std::size_t>(i)] = *a.in<float>(form.first_hyper() + i);
  }
  void operator()(std::span<float> w, std::span<const float> g, std::span<float* const> slots) const {
    formula(hyper, w, g, slots);
  }
};

PreparedKernel prepare(const Form& form, const PrepareContext& c) {
  for (int i = 0; i <= form.slots; ++i)
    if (c.inputs[static_cast<std::size_t>(i)].dtype != DType::Float32)
      c.fail(fmt::format("input {} must hold float32", i));
  const std::int64_t elements = c.inputs[0].shape.elements();
  const auto slots = static_cast<std::size_t>(form.slots);
  if (!form.sparse)
    return serial_kernel([=, pool = &c.pool](const KernelArgs& a) {
      apply_dense(*pool, VariableRun(a, slots), elements, a.in<float>(form.gradient()), Update(form, a));
    });
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(form.indices())];
  const std::int64_t n = index_info.shape[0], rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : elements / rows;
  return with_index(form.name, index_info.dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
    kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      check_indices(place, a.in<I>(form.indices()), n, rows);
      const IndexGroups groups(a.in<I>(form.indices()), n, rows, a.scratch);
      apply_each_row(*pool, VariableRun(a, slots), width, groups, a.in<float>(form.gradient()),
                     Update(form, a));
    };
    return kernel;
  });
}

}  // namespace

void register_resource_apply_adaptive(OpRegistry& registry) {
  for (const bool sparse : {false, true}) {
    const std::string prefix = sparse ? "ResourceSparseApply" : "ResourceApply";
    const Form forms[] = {{prefix + "RMSProp", 2, 4, false, sparse, rms_prop<false>},
                          {prefix + "CenteredRMSProp", 3, 4, false, sparse, rms_prop<true>},
                          {prefix + "Adadelta", 2, 3, false, sparse, adadelta},
                          {prefix + "Ftrl", 2, 4, true, sparse, ftrl<false>},
                          {prefix + "FtrlV2", 2, 5, true, sparse, ftrl<true>}};
    for (const Form& form : forms)
      registry.add(
          {.name = form.name,
           .min_inputs = form.inputs(),
           .max_inputs = form.inputs(),
           .infer = [form](InferContext& c) { infer(form, c); },
           .no_gradient_reason = "it writes a variable",
           .cpu = [form](const PrepareContext& c) { return prepare(form, c); },
           .handles = std::vector<Access>(static_cast<std::size_t>(form.slots) + 1, Access::ReadWrite),
           .side_effect = true});
  }
}

}  // namespace braid
