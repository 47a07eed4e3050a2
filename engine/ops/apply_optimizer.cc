// braid.ApplyOptimizer(handle, slot handles..., gradient) and
// braid.SparseApplyOptimizer(handle, slot handles..., indices [n], values [n, row...]): one step of the
// optimizer that the attributes name (engine/ops/optimizer_attrs.h), by the formulas of base/optim.h.
// Learning rate, gradient scale and step number come from StepParams. Duplicates among the indices are summed
// first, in order of position; rows that are not named keep their values and slots.
#include <fmt/format.h>

#include "engine/ops/common/apply_rows.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer_attrs.h"

namespace braid {
namespace {

/// Checks the handles and gives the index of the first input behind them.
int require_handles(const InferContext& c, int gradient_inputs) {
  const OptimizerSpec spec = optimizer_spec(c.node().attrs);
  const int handles = 1 + static_cast<int>(optimizer_slots(spec).size());
  if (c.inputs() != handles + gradient_inputs)
    c.fail(fmt::format("{} takes {} inputs, got {}", optimizer_name(spec.kind), handles + gradient_inputs,
                       c.inputs()));
  for (int i = 0; i < handles; ++i) {
    if (c.dtype(i) != DType::Resource)
      c.fail(fmt::format("input {} must be a variable's handle, got {}", i, dtype_name(c.dtype(i))));
    merged_shape(c, 0, i);
  }
  return handles;
}

void infer_dense(InferContext& c) {
  const int gradient = require_handles(c, 1);
  require_dtype(c, gradient, {DType::Float32});
  merged_shape(c, 0, gradient);
}

void infer_sparse(InferContext& c) {
  const int indices = require_handles(c, 2);
  c.require_rank(indices, 1);
  require_index_dtype(c, indices);
  require_dtype(c, indices + 1, {DType::Float32});
  const Shape& variable = c.shape(0);
  const Shape& values = c.shape(indices + 1);
  if (!variable.has_rank()) return;
  if (variable.rank() == 0) c.fail("a scalar has no rows");
  Shape expected = variable;
  expected.set_dim(0, c.shape(indices).has_rank() ? c.shape(indices)[0] : Shape::kUnknown);
  Shape merged;
  if (!merge_shapes(expected, values, merged))
    c.fail(fmt::format("values of shape {} are no rows of shape {} for {} indices", values.to_string(),
                       variable.to_string(), c.shape(indices).to_string()));
}

void require_float32_variables(const PrepareContext& c, std::size_t handles) {
  for (std::size_t i = 0; i < handles; ++i)
    if (c.inputs[i].dtype != DType::Float32)
      c.fail(fmt::format("input {} must hold float32, got {}", i, dtype_name(c.inputs[i].dtype)));
}

PreparedUpdate update_of(const OptimizerSpec& spec, const StepParams& params) {
  return prepare_update(
      spec, {.learning_rate = params.learning_rate, .grad_scale = params.grad_scale, .step = params.step});
}

PreparedKernel prepare_dense(const PrepareContext& c) {
  const OptimizerSpec spec = optimizer_spec(c.node.attrs);
  const std::size_t slots = optimizer_slots(spec).size();
  require_float32_variables(c, 1 + slots);
  const std::int64_t elements = c.inputs[0].shape.elements();
  return serial_kernel([=, pool = &c.pool](const KernelArgs& a) {
    const PreparedUpdate update = update_of(spec, *a.params);
    apply_dense(
        *pool, VariableRun(a, slots), elements, a.in<float>(static_cast<int>(slots) + 1),
        [&](auto weights, auto gradient, auto state) { apply_update(update, weights, gradient, state); });
  });
}

PreparedKernel prepare_sparse(const PrepareContext& c) {
  const OptimizerSpec spec = optimizer_spec(c.node.attrs);
  const std::size_t slots = optimizer_slots(spec).size();
  require_float32_variables(c, 1 + slots);
  const int indices = static_cast<int>(slots) + 1;
  const std::int64_t rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.inputs[0].shape.elements() / rows;
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(indices)];
  const std::int64_t n = index_info.shape[0];
  return with_index("braid.SparseApplyOptimizer", index_info.dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
    kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      check_indices(place, a.in<I>(indices), n, rows);
      const IndexGroups groups(a.in<I>(indices), n, rows, a.scratch);
      const PreparedUpdate update = update_of(spec, *a.params);
      apply_summed_rows(
          *pool, VariableRun(a, slots), width, groups, a.in<float>(indices + 1),
          [&](auto weights, auto gradient, auto state) { apply_update(update, weights, gradient, state); });
    };
    return kernel;
  });
}

Cost dense_cost(const InferContext& c, std::span<const OutputInfo>) {
  const double elements = known_elements(c.shape(0));
  return {8 * elements, 4 * elements * (2 * c.inputs() - 1)};  // handles are read and written
}

Cost sparse_cost(const InferContext& c, std::span<const OutputInfo>) {
  const double elements = known_elements(c.shape(c.inputs() - 1));
  return {9 * elements, 4 * elements * (2 * c.inputs() - 3)};
}

OpDef update_op(std::string name, std::function<void(InferContext&)> infer, PrepareFn cpu, int inputs) {
  return {.name = std::move(name),
          .min_inputs = inputs,
          .max_inputs = inputs + static_cast<int>(VariableRun::kMaxSlots),
          .infer = std::move(infer),
          .no_gradient_reason = "it writes a variable",
          .cpu = std::move(cpu),
          .handles = {Access::ReadWrite, Access::ReadWrite, Access::ReadWrite},
          .side_effect = true};
}

}  // namespace

void register_apply_optimizer(OpRegistry& registry) {
  OpDef dense = update_op("braid.ApplyOptimizer", infer_dense, prepare_dense, 2);
  dense.cost = dense_cost;
  registry.add(std::move(dense));
  OpDef sparse = update_op("braid.SparseApplyOptimizer", infer_sparse, prepare_sparse, 3);
  sparse.cost = sparse_cost;
  registry.add(std::move(sparse));
}

}  // namespace braid
