// ReverseV2(x, axis [n]): x with the order of its elements along those axes turned round. It is its own
// gradient.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  c.require_rank(1, 1);
  require_index_dtype(c, 1);
  if (c.shape(0).has_rank() && c.value(1)) {
    std::vector<bool> seen(static_cast<std::size_t>(c.shape(0).rank()));
    for (std::int64_t requested : tensor_to_int64s(*c.value(1))) {
      const auto axis = static_cast<std::size_t>(normalized_axis(c, requested, c.shape(0).rank()));
      if (seen[axis]) c.fail(fmt::format("axis {} is given twice", axis));
      seen[axis] = true;
    }
  }
  infer_same_as_first(c);
}

}  // namespace

BoxPlan plans::reverse(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::vector<std::int64_t> strides = row_major_strides(shape);
  std::vector<BoxAxis> axes;
  for (int i = 0; i < shape.rank(); ++i)
    axes.push_back({shape[i], strides[static_cast<std::size_t>(i)], strides[static_cast<std::size_t>(i)]});
  std::int64_t offset = 0;
  for (std::int64_t axis : tensor_to_int64s(*c.values[1])) {
    BoxAxis& a = axes[static_cast<std::size_t>(axis < 0 ? axis + shape.rank() : axis)];
    offset += (a.size - 1) * a.src_stride;
    a.src_stride = -a.src_stride;
  }
  return {{{BoxCopy(axes, offset, 0, dtype_size(c.inputs[0].dtype)), 0, 0}}};
}

void register_reverse(OpRegistry& registry) {
  registry.add({.name = "ReverseV2",
                .traits = moves().any_type().on_string_ids().type_attrs({{"T", 0}, {"Tidx", 1}}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("ReverseV2", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare_boxes<plans::reverse>,
                .shape_values = {1}});
}

}  // namespace braid
