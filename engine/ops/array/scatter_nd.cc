// Scatters of slices by vectors of indices [..., k] (common/nd_addressing.h), one after the other in their
// order: ResourceScatterNdAdd, Sub, Update, Min, Max(handle, indices, updates) write a variable;
// TensorScatterAdd, Sub, Update, Min, Max(tensor, indices, updates) give a changed copy. Gradients of the
// latter: dy, and dy at the indices; Update puts zeros where it wrote; Min and Max share dy among the
// elements that equal the result.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/nd_addressing.h"
#include "engine/ops/common/scatter_rows.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/common/stored_type.h"

namespace braid {
namespace {

void check_operands(InferContext& c) {
  require_index_dtype(c, 1);
  require_number(c, 2);
  const Shape expected = nd_slices_shape(c, c.shape(0), c.shape(1));
  Shape merged;
  if (!merge_shapes(expected, c.shape(2), merged))
    c.fail(fmt::format("updates must have shape {}, got {}", expected.to_string(), c.shape(2).to_string()));
}

void infer_variable(InferContext& c) {
  if (c.dtype(0) != DType::Resource)
    c.fail("input 0 must be a variable's handle, got " + std::string(dtype_name(c.dtype(0))));
  check_operands(c);
}

void infer_tensor(InferContext& c) {
  c.require_same_dtype(0, 2);
  check_operands(c);
  c.output(c.dtype(0), c.shape(0));
}

/// The row that each vector of indices names.
void find_rows(const std::string& place, const NdAddressing& to, DType dtype, const void* indices,
               std::int64_t* rows) {
  with_index(place, dtype, [&]<class I>() {
    for (std::int64_t k = 0; k < to.count; ++k) rows[k] = to.row(place, static_cast<const I*>(indices), k);
  });
}

template <class Op>
PreparedKernel prepare(const PrepareContext& c) {
  if (computed_type(c.inputs[0].dtype) != c.inputs[2].dtype)
    c.fail(fmt::format("the variable holds {}, the updates are {}", dtype_name(c.inputs[0].dtype),
                       dtype_name(c.inputs[2].dtype)));
  const NdAddressing to(c.inputs[0].shape, c.inputs[1].shape);
  const std::size_t row_bytes = (static_cast<std::size_t>(to.count) * sizeof(std::int64_t) + 63) / 64 * 64;
  const bool copies = !c.outputs.empty();
  const auto elements = static_cast<std::size_t>(c.inputs[0].shape.elements());
  return with_stored_number("ScatterNdUpdate", c.inputs[0].dtype, [&]<class S, class T>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = row_bytes + IndexGroups::scratch_bytes(to.count);
    kernel.run = [=, pool = &c.pool, dtype = c.inputs[1].dtype,
                  place = place_of(c.node)](const KernelArgs& a) {
      auto* rows = static_cast<std::int64_t*>(a.scratch);
      find_rows(place, to, dtype, a.inputs[1], rows);
      const IndexGroups groups(rows, to.count, to.rows, static_cast<char*>(a.scratch) + row_bytes);
      S* target = copies ? a.out<S>(0) : a.var<S>(0);
      if (copies && target != a.in<S>(0) && elements != 0)
        std::memcpy(target, a.in<S>(0), elements * sizeof(S));
      scatter::rows<Op>(*pool, groups, to.width, a.in<T>(2), 1, target);
    };
    return kernel;
  });
}

void gradient_add(GradContext& c) {
  c.set_grad(0, c.grad());
  c.set_grad(2, c.op("GatherNd", {c.grad(), c.input(1)}));
}
void gradient_sub(GradContext& c) {
  c.set_grad(0, c.grad());
  c.set_grad(2, grad::neg(c, c.op("GatherNd", {c.grad(), c.input(1)})));
}
void gradient_update(GradContext& c) {
  c.set_grad(0, c.op("TensorScatterUpdate", {c.grad(), c.input(1), c.op("ZerosLike", {c.input(2)})}));
  c.set_grad(2, c.op("GatherNd", {c.grad(), c.input(1)}));
}

void gradient_extreme(GradContext& c) {
  const auto hits = [&](ValueRef value, ValueRef result) {
    return c.op("Cast", {c.op("Equal", {value, result})},
                {{"DstT", c.output_info().dtype}, {"SrcT", DType::Bool}});
  };
  const ValueRef indices = c.input(1);
  const ValueRef kept = hits(c.input(0), c.output());
  const ValueRef updated = hits(c.input(2), c.op("GatherNd", {c.output(), indices}));
  const ValueRef share = c.op("Div", {c.grad(), c.op("TensorScatterAdd", {kept, indices, updated})});
  c.set_grad(0, grad::mul(c, share, kept));
  c.set_grad(2, grad::mul(c, c.op("GatherNd", {share, indices}), updated));
}

}  // namespace

void register_scatter_nd(OpRegistry& registry) {
  const std::pair<const char*, PrepareFn> variable_forms[] = {
      {"ResourceScatterNdAdd", prepare<scatter::Add>},
      {"ResourceScatterNdSub", prepare<scatter::Sub>},
      {"ResourceScatterNdUpdate", prepare<scatter::Update>},
      {"ResourceScatterNdMin", prepare<scatter::Min>},
      {"ResourceScatterNdMax", prepare<scatter::Max>}};
  for (const auto& [name, cpu] : variable_forms)
    registry.add({.name = name,
                  .traits = updates(),
                  .min_inputs = 3,
                  .max_inputs = 3,
                  .infer = infer_variable,
                  .no_gradient_reason = "it writes a variable",
                  .cpu = cpu,
                  .handles = {Access::ReadWrite},
                  .side_effect = true});
  const OpTraits tensor = computes().type_attrs({{"T", 0}, {"Tindices", 1}});
  const auto add_tensor = [&](const char* name, const OpTraits& traits, PrepareFn cpu, GradFn gradient) {
    registry.add({.name = name,
                  .traits = traits,
                  .min_inputs = 3,
                  .max_inputs = 3,
                  .infer = infer_tensor,
                  .gradient = std::move(gradient),
                  .cpu = std::move(cpu),
                  .in_place = {{0, 0}}});
  };
  add_tensor("TensorScatterAdd", tensor, prepare<scatter::Add>, gradient_add);
  add_tensor("TensorScatterSub", tensor, prepare<scatter::Sub>, gradient_sub);
  add_tensor("TensorScatterUpdate", tensor.computes_in(bools_as_integers).on_string_ids(),
             prepare<scatter::Update>, gradient_update);
  add_tensor("TensorScatterMin", tensor, prepare<scatter::Min>, gradient_extreme);
  add_tensor("TensorScatterMax", tensor, prepare<scatter::Max>, gradient_extreme);
}

}  // namespace braid
