// braid.ApplyOptimizer(handle, slot handles..., gradient): one step of the optimizer that the attributes name
// (engine/ops/optimizer/optimizer_attrs.h), by the formulas of base/optim.h. braid.ApplyOptimizerMany does so
// for any number of variables, whose inputs follow one another (engine/ops/optimizer/update_inputs.h).
// Learning rate, gradient scale and step number come from StepParams.
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
    const PreparedUpdate update = step_update(in.spec, *a.params);
    for (int v = 0; v < in.variables; ++v)
      apply_dense(
          *pool, VariableRun(a, static_cast<std::size_t>(in.slots), in.handle(v)),
          elements[static_cast<std::size_t>(v)], a.in<float>(in.gradient(v)),
          [&](auto weights, auto gradient, auto state) { apply_update(update, weights, gradient, state); });
  });
}

}  // namespace

void register_apply_optimizer(OpRegistry& registry) {
  OpDef one = update_op("braid.ApplyOptimizer", 1, false, prepare);
  one.traits = one.traits.batched(Batching::Update);
  registry.add(std::move(one));
  registry.add(update_op("braid.ApplyOptimizerMany", 1, true, prepare));
}

}  // namespace braid
