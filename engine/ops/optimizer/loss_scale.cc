// Dynamic loss scaling, decided where the step runs:
//   braid.NotFinite(x...) -> []    1 where any element of any x is an infinity or NaN, else 0; float32
//   braid.LossScaleStep(scale, good, skipped, flags...) -> inverse [], skip []
// scale, good and skipped are handles of float32 scalars: what the loss is multiplied by, the steps since it
// changed, and the steps that were skipped in all. Where a flag is not 0, the step is skipped: the scale is
// halved, and `inverse` is NaN, which the updates of such gradients leave everything alone for
// (OptimizerSpec::skip_nan); else `inverse` is 1 / scale as the loss was multiplied by it, and after `growth`
// steps in a row the scale is doubled. It stays within [1, 2^24]. `skip` is 1 or 0.
#include "engine/ops/optimizer/loss_scale.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_not_finite(InferContext& c) {
  for (int i = 0; i < c.inputs(); ++i) require_dtype(c, i, {DType::Float32});
  c.output(DType::Float32, Shape{});
}

BRAID_VECTOR_CLONES bool any_not_finite(const float* x, std::int64_t n) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < n; ++i)
    found |= (std::bit_cast<std::uint32_t>(x[i]) & kExponent) == kExponent ? 1U : 0U;
  return found != 0;
}

PreparedKernel prepare_not_finite(const PrepareContext& c) {
  std::vector<std::int64_t> elements;
  for (const OutputInfo& input : c.inputs) elements.push_back(input.shape.elements());
  return serial_kernel([elements = std::move(elements), pool = &c.pool](const KernelArgs& a) {
    std::atomic<bool> found{false};
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto* const x = static_cast<const float*>(a.inputs[i]);
      pool->parallel_range(elements[i], kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        if (any_not_finite(x + begin, end - begin)) found.store(true, std::memory_order_relaxed);
      });
    }
    a.out<float>(0)[0] = found ? 1.0F : 0.0F;
  });
}

void infer_step(InferContext& c) {
  for (int i = 0; i < LossScaleInputs::kFlags; ++i)
    if (c.dtype(i) != DType::Resource) c.fail("expected the handles of scale, good and skipped steps");
  for (int i = LossScaleInputs::kFlags; i < c.inputs(); ++i) {
    require_dtype(c, i, {DType::Float32});
    c.require_rank(i, 0);
  }
  c.output(DType::Float32, Shape{});
  c.output(DType::Float32, Shape{});
}

PreparedKernel prepare_step(const PrepareContext& c) {
  return serial_kernel(
      [flags = static_cast<int>(c.inputs.size()) - LossScaleInputs::kFlags,
       growth = static_cast<float>(c.attr<std::int64_t>("growth", 2000))](const KernelArgs& a) {
        bool bad = false;
        for (int f = 0; f < flags; ++f) bad = bad || !(a.in<float>(LossScaleInputs::kFlags + f)[0] == 0.0F);
        const LossScaleStep step = step_loss_scale(*a.in<float>(0), *a.in<float>(1), bad, growth);
        a.out<float>(0)[0] = step.inverse;
        a.out<float>(1)[0] = bad ? 1.0F : 0.0F;
        *a.var<float>(0) = step.scale;
        *a.var<float>(1) = step.good;
        if (bad) *a.var<float>(2) += 1;
      });
}

}  // namespace

void register_loss_scale(OpRegistry& registry) {
  OpDef finite;
  finite.name = "braid.NotFinite";
  finite.traits = computes();
  finite.min_inputs = 1;
  finite.max_inputs = -1;
  finite.infer = infer_not_finite;
  finite.no_gradient_reason = "loss scaling looks at gradients";
  finite.cpu = prepare_not_finite;
  registry.add(std::move(finite));

  OpDef step;
  step.name = "braid.LossScaleStep";
  step.traits = computes().names({"inverse", "skip"}).type_attrs({});
  step.min_inputs = LossScaleInputs::kFlags + 1;
  step.max_inputs = -1;
  step.infer = infer_step;
  step.no_gradient_reason = "it writes variables";
  step.cpu = prepare_step;
  step.handles = {Access::ReadWrite, Access::ReadWrite, Access::ReadWrite};
  step.stateful = true;
  step.side_effect = true;
  registry.add(std::move(step));
}

}  // namespace braid
