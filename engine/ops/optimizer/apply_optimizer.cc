// braid.ApplyOptimizer(handle, slot handles..., gradient): one step of the optimizer that the attributes name
// (engine/ops/optimizer/optimizer_attrs.h), by the formulas of base/optim.h. braid.ApplyOptimizerMany does so
// for any number of variables, whose inputs follow one another (engine/ops/optimizer/update_inputs.h).
// braid.ApplyOptimizerTo(handle, slots..., gradient) -> slots takes the slots as values, which lie elsewhere
// between steps (worker/step/offload.h), and gives the new ones, in their place where it can.
// Learning rate, gradient scale and step number come from StepParams. The first two may have a factor
// (engine/ops/optimizer/update_inputs.h).
#include <cstring>

#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/apply_rows.h"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  std::vector<std::int64_t> elements;
  for (int v = 0; v < in.variables; ++v)
    elements.push_back(c.inputs[static_cast<std::size_t>(in.handle(v))].shape.elements());
  return serial_kernel([in, elements = std::move(elements), pool = &c.pool](const KernelArgs& a) {
    const PreparedUpdate update = step_update(in.spec, *a.params, in.factor_of(a));
    for (int v = 0; v < in.variables; ++v)
      apply_dense(
          *pool, VariableRun(a, static_cast<std::size_t>(in.slots), in.handle(v)),
          elements[static_cast<std::size_t>(v)], a.in<float>(in.gradient(v)),
          [&](auto weights, auto gradient, auto state) { apply_update(update, weights, gradient, state); });
  });
}

void infer_to(InferContext& c) {
  require_dtype(c, c.inputs() - 1, {DType::Float32});
  const Shape shape = merged_shape(c, 0, c.inputs() - 1);
  for (int slot = 1; slot + 1 < c.inputs(); ++slot) {
    require_dtype(c, slot, {DType::Float32});
    merged_shape(c, 0, slot);
    c.output(DType::Float32, shape);
  }
}

PreparedKernel prepare_to(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  return serial_kernel([in, elements = c.inputs[0].shape.elements(), pool = &c.pool](const KernelArgs& a) {
    const PreparedUpdate update = step_update(in.spec, *a.params);
    VariableRun run(a, static_cast<std::size_t>(in.slots));
    for (int s = 0; s < in.slots; ++s) {
      if (a.outputs[s] != a.inputs[s + 1])
        std::memcpy(a.outputs[s], a.inputs[s + 1], static_cast<std::size_t>(elements) * sizeof(float));
      run.slots[static_cast<std::size_t>(s)] = a.out<float>(s);
    }
    apply_dense(
        *pool, run, elements, a.in<float>(1 + in.slots),
        [&](auto weights, auto gradient, auto state) { apply_update(update, weights, gradient, state); });
  });
}

OpDef update_to() {
  OpDef def = update_op("braid.ApplyOptimizerTo", 1, false, prepare_to);
  def.traits = computes().output_list();
  def.infer = infer_to;
  def.handles = {Access::ReadWrite};
  def.further_handles = Access::None;
  def.in_place = {{0, 1}, {1, 2}, {2, 3}};
  return def;
}

}  // namespace

void register_apply_optimizer(OpRegistry& registry) {
  OpDef one = update_op("braid.ApplyOptimizer", 1, false, prepare);
  one.traits = one.traits.batched(Batching::Update);
  registry.add(std::move(one));
  registry.add(update_op("braid.ApplyOptimizerMany", 1, true, prepare));
  registry.add(update_to());
}

}  // namespace braid
