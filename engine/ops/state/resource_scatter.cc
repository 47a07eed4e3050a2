// ResourceScatterAdd, Sub, Mul, Div, Min, Max, Update(handle, indices, updates): var[indices[k], ...] op=
// updates[k], one after the other in the order of k, so duplicates all count. Updates may also be one scalar.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scatter_rows.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/common/stored_type.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  if (c.dtype(0) != DType::Resource)
    c.fail("input 0 must be a variable's handle, got " + std::string(dtype_name(c.dtype(0))));
  require_index_dtype(c, 1);
  require_number(c, 2);
  require_min_rank(c, 0, 1);
  const Shape& variable = c.shape(0);
  const Shape& indices = c.shape(1);
  if (!variable.has_rank() || !indices.has_rank() || c.shape(2) == Shape{}) return;
  std::vector<std::int64_t> dims(indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), variable.dims().begin() + 1, variable.dims().end());
  const Shape expected(std::move(dims));
  Shape merged;
  if (!merge_shapes(expected, c.shape(2), merged))
    c.fail(fmt::format("updates must have shape {}, got {}", expected.to_string(), c.shape(2).to_string()));
}

template <class Op>
PreparedKernel prepare(const PrepareContext& c) {
  if (computed_type(c.inputs[0].dtype) != c.inputs[2].dtype)
    c.fail(fmt::format("the variable holds {}, the updates are {}", dtype_name(c.inputs[0].dtype),
                       dtype_name(c.inputs[2].dtype)));
  const std::int64_t n = c.inputs[1].shape.elements();
  const std::int64_t rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.inputs[0].shape.elements() / rows;
  const std::int64_t stride = c.inputs[2].shape.rank() == 0 ? 0 : 1;
  return with_stored_number("ResourceScatterAdd", c.inputs[0].dtype, [&]<class S, class T>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
    kernel.run = [=, pool = &c.pool, dtype = c.inputs[1].dtype,
                  place = place_of(c.node)](const KernelArgs& a) {
      const auto groups = IndexGroups::checked(place, dtype, a.inputs[1], n, rows, a.scratch);
      scatter::rows<Op>(*pool, groups, width, a.in<T>(2), stride, a.var<S>(0));
    };
    return kernel;
  });
}

/// Of integers, where a zero divisor is an error.
PreparedKernel prepare_div(const PrepareContext& c) {
  PreparedKernel kernel = prepare<scatter::Div>(c);
  if (is_floating(c.inputs[2].dtype)) return kernel;
  return with_index("ResourceScatterDiv", c.inputs[2].dtype, [&]<class T>() {
    const std::int64_t updates = c.inputs[2].shape.elements();
    kernel.run = [divide = std::move(kernel.run), updates, place = place_of(c.node)](const KernelArgs& a) {
      for (std::int64_t i = 0; i < updates; ++i)
        if (a.in<T>(2)[i] == 0) throw InvalidArgument(place + ": integer division by zero");
      divide(a);
    };
    return std::move(kernel);
  });
}

}  // namespace

void register_resource_scatter(OpRegistry& registry) {
  const std::pair<const char*, PrepareFn> forms[] = {
      {"ResourceScatterAdd", prepare<scatter::Add>},      {"ResourceScatterSub", prepare<scatter::Sub>},
      {"ResourceScatterMul", prepare<scatter::Mul>},      {"ResourceScatterDiv", prepare_div},
      {"ResourceScatterMin", prepare<scatter::Min>},      {"ResourceScatterMax", prepare<scatter::Max>},
      {"ResourceScatterUpdate", prepare<scatter::Update>}};
  for (const auto& [name, cpu] : forms)
    registry.add({.name = name,
                  .traits = updates(),
                  .min_inputs = 3,
                  .max_inputs = 3,
                  .infer = infer,
                  .no_gradient_reason = "it writes a variable",
                  .cpu = cpu,
                  .handles = {Access::ReadWrite},
                  .side_effect = true});
}

}  // namespace braid
