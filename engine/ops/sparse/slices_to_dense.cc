// braid.SlicesToDense(indices [n], values [n, row...], like): the dense form of a sparse gradient, zeros in
// the shape of `like` (of which only the shape is used) plus values[k] at row indices[k], duplicates added in
// the order of k. With the attribute skip_negative a negative index names no row.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  c.require_rank(0, 1);
  require_index_dtype(c, 0);
  require_min_rank(c, 1, 1);
  require_min_rank(c, 2, 1);
  const Shape& indices = c.shape(0);
  const Shape& values = c.shape(1);
  const Shape& like = c.shape(2);
  if (values.has_rank() && like.has_rank()) {
    Shape expected = like;
    expected.set_dim(0, indices.has_rank() ? indices[0] : Shape::kUnknown);
    Shape merged;
    if (!merge_shapes(expected, values, merged))
      c.fail(fmt::format("values of shape {} are no rows of shape {} for {} indices", values.to_string(),
                         like.to_string(), indices.to_string()));
  }
  c.output(c.dtype(1), like);
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0];
  const std::int64_t rows = c.outputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.outputs[0].shape.elements() / rows;
  return with_number("braid.SlicesToDense", c.inputs[1].dtype, [&]<class T>() {
    return with_index("braid.SlicesToDense", c.inputs[0].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node),
                    padded = c.attr(kSkipNegative, false)](const KernelArgs& a) {
        (padded ? check_segment_ids<I> : check_indices<I>)(place, a.in<I>(0), n, rows);
        sum_rows(*pool, IndexGroups(a.in<I>(0), n, rows, a.scratch), a.in<T>(1), width, rows, a.out<T>(0));
      };
      return kernel;
    });
  });
}

void gradient(GradContext& c) { c.set_grad(1, c.op("braid.GatherOrZero", {c.grad(), c.input(0)})); }

}  // namespace

void register_slices_to_dense(OpRegistry& registry) {
  registry.add({.name = "braid.SlicesToDense",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer,
                .gradient = gradient,
                .cpu = prepare,
                .shape_only = {2}});
}

}  // namespace braid
