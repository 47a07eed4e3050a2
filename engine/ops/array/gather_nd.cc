// GatherNd(params, indices [..., k]): params[indices[...]], slices of the last rank - k axes.
// ScatterNd(indices [..., k], updates, shape): zeros with updates added at those places, duplicates in their
// order. Each is the other's gradient. An index out of range is InvalidArgument.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/nd_addressing.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_gather_nd(InferContext& c) {
  require_index_dtype(c, 1);
  c.output(c.dtype(0), nd_slices_shape(c, c.shape(0), c.shape(1)));
}

PreparedKernel prepare_gather_nd(const PrepareContext& c) {
  const NdAddressing to(c.inputs[0].shape, c.inputs[1].shape);
  const std::size_t bytes = static_cast<std::size_t>(to.width) * dtype_size(c.inputs[0].dtype);
  return with_index("GatherNd", c.inputs[1].dtype, [&]<class I>() {
    return parallel_kernel(
        c, to.count, row_grain(to.width),
        [=, place = place_of(c.node)](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          for (std::int64_t k = begin; k < end; ++k)
            std::memcpy(a.out<char>(0) + static_cast<std::size_t>(k) * bytes,
                        a.in<char>(0) + static_cast<std::size_t>(to.row(place, a.in<I>(1), k)) * bytes,
                        bytes);
        });
  });
}

void gather_nd_gradient(GradContext& c) {
  c.set_grad(0, c.op("ScatterNd", {c.input(1), c.grad(),
                                   c.op("Shape", {c.input(0)}, {{"out_type", c.input_info(1).dtype}})}));
}

void infer_scatter_nd(InferContext& c) {
  require_index_dtype(c, 0);
  require_number(c, 1);
  require_index_dtype(c, 2);
  c.require_rank(2, 1);
  Shape whole = Shape::unknown_rank();
  if (c.value(2)) {
    whole = Shape(tensor_to_int64s(*c.value(2)));
    for (std::int64_t d : whole.dims())
      if (d < 0) c.fail("the shape has a negative dimension: " + whole.to_string());
    const Shape expected = nd_slices_shape(c, whole, c.shape(0));
    Shape merged;
    if (!merge_shapes(expected, c.shape(1), merged))
      c.fail(fmt::format("updates must have shape {}, got {}", expected.to_string(), c.shape(1).to_string()));
  } else if (c.shape(2).is_static()) {
    whole = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(2)[0]), Shape::kUnknown));
  }
  c.output(c.dtype(1), whole);
}

PreparedKernel prepare_scatter_nd(const PrepareContext& c) {
  const NdAddressing to(c.outputs[0].shape, c.inputs[0].shape);
  const std::size_t row_bytes = (static_cast<std::size_t>(to.count) * sizeof(std::int64_t) + 63) / 64 * 64;
  return with_number("ScatterNd", c.inputs[1].dtype, [&]<class T>() {
    return with_index("ScatterNd", c.inputs[0].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = row_bytes + IndexGroups::scratch_bytes(to.count);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        auto* rows = static_cast<std::int64_t*>(a.scratch);
        for (std::int64_t k = 0; k < to.count; ++k) rows[k] = to.row(place, a.in<I>(0), k);
        const IndexGroups groups(rows, to.count, to.rows, static_cast<char*>(a.scratch) + row_bytes);
        sum_rows(*pool, groups, a.in<T>(1), to.width, to.rows, a.out<T>(0));
      };
      return kernel;
    });
  });
}

void scatter_nd_gradient(GradContext& c) { c.set_grad(1, c.op("GatherNd", {c.grad(), c.input(0)})); }

}  // namespace

void register_gather_nd(OpRegistry& registry) {
  registry.add({.name = "GatherNd",
                .traits = moves().any_type().on_string_ids().type_attrs({{"Tparams", 0}, {"Tindices", 1}}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_gather_nd,
                .gradient = gather_nd_gradient,
                .cpu = prepare_gather_nd});
  registry.add({.name = "ScatterNd",
                .traits = computes().computes_in(bools_as_integers).type_attrs({{"T", 1}, {"Tindices", 0}}),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_scatter_nd,
                .gradient = scatter_nd_gradient,
                .cpu = prepare_scatter_nd,
                .shape_values = {2}});
}

}  // namespace braid
