// Roll(x, shift, axis): y[i] = x[(i - shift) modulo the axis' size], along one axis or several; shifts of an
// axis that is named twice add up. Its gradient rolls back.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_min_rank(c, 0, 1);
  for (const int i : {1, 2}) {
    require_index_dtype(c, i);
    if (c.shape(i).has_rank() && c.shape(i).rank() > 1)
      c.fail(fmt::format("input {} must be a number or a vector, got {}", i, c.shape(i).to_string()));
  }
  if (c.value(1) && c.value(2) && c.value(1)->elements() != c.value(2)->elements())
    c.fail(fmt::format("{} shifts for {} axes", c.value(1)->elements(), c.value(2)->elements()));
  if (c.shape(0).has_rank() && c.value(2))
    for (const std::int64_t axis : tensor_to_int64s(*c.value(2))) normalized_axis(c, axis, c.shape(0).rank());
  infer_same_as_first(c);
}

/// By how many places each axis is rolled, in [0, its size).
std::vector<std::int64_t> shifts_of(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  std::vector<std::int64_t> shifts(static_cast<std::size_t>(shape.rank()));
  const std::vector<std::int64_t> by = tensor_to_int64s(*c.values[1]), axes = tensor_to_int64s(*c.values[2]);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const std::int64_t axis = axes[k] < 0 ? axes[k] + shape.rank() : axes[k];
    const std::int64_t size = std::max<std::int64_t>(shape[static_cast<int>(axis)], 1);
    std::int64_t& shift = shifts[static_cast<std::size_t>(axis)];
    shift = ((shift + by[k] % size) % size + size) % size;
  }
  return shifts;
}

/// Adds the boxes of axes [axis, rank): what stays in order along an axis is one part, what comes round from
/// its end another.
void add_boxes(const PrepareContext& c, const std::vector<std::int64_t>& shifts, std::size_t axis,
               std::vector<BoxAxis> axes, std::int64_t src, std::int64_t dst, BoxPlan& plan) {
  const Shape& shape = c.inputs[0].shape;
  if (axis == shifts.size()) {
    plan.parts.push_back({BoxCopy(std::move(axes), src, dst, dtype_size(c.inputs[0].dtype)), 0, 0});
    return;
  }
  const std::int64_t stride = row_major_strides(shape)[axis];
  const std::int64_t size = shape[static_cast<int>(axis)], shift = shifts[axis];
  axes.push_back({size - shift, stride, stride});
  add_boxes(c, shifts, axis + 1, axes, src, dst + shift * stride, plan);
  if (shift == 0) return;
  axes.back().size = shift;
  add_boxes(c, shifts, axis + 1, axes, src + (size - shift) * stride, dst, plan);
}

void gradient(GradContext& c) {
  c.set_grad(0, c.op("Roll", {c.grad(), grad::neg(c, c.input(1)), c.input(2)}));
}

}  // namespace

BoxPlan plans::roll(const PrepareContext& c) {
  BoxPlan plan;
  add_boxes(c, shifts_of(c), 0, {}, 0, 0, plan);
  return plan;
}

void register_roll(OpRegistry& registry) {
  registry.add({.name = "Roll",
                .traits = moves(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer,
                .gradient = gradient,
                .cpu = prepare_boxes<plans::roll>,
                .shape_values = {1, 2}});
}

}  // namespace braid
