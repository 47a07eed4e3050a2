// StridedSlice(x, begin, end, strides) with TensorFlow's masks (engine/ops/array/strided_range.h), and
// StridedSliceGrad(shape, begin, end, strides, dy): zeros of `shape` with dy where the slice reads. Each is
// the other's gradient.
#include <fmt/format.h>

#include "engine/ops/array/strided_range.h"
#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// What begin, end and strides (inputs 1, 2, 3) select of a tensor of shape `input`; its output has unknown
/// rank when too little is known.
StridedRange infer_range(const InferContext& c, const Shape& input) {
  std::int64_t count = Shape::kUnknown;
  SliceValues values;
  std::optional<std::vector<std::int64_t>>* slots[] = {&values.begin, &values.end, &values.strides};
  for (int i : {1, 2, 3}) {
    c.require_rank(i, 1);
    require_index_dtype(c, i);
    if (c.value(i)) *slots[i - 1] = tensor_to_int64s(*c.value(i));
    const std::int64_t length = c.value(i)              ? c.value(i)->elements()
                                : c.shape(i).has_rank() ? c.shape(i)[0]
                                                        : Shape::kUnknown;
    if (length == Shape::kUnknown) continue;
    if (count != Shape::kUnknown && count != length)
      c.fail(fmt::format("begin, end and strides must have one length, got {} and {}", count, length));
    count = length;
  }
  if (count == Shape::kUnknown || !input.has_rank()) return {{}, Shape::unknown_rank()};
  return resolve_strided_range(input, count, values, SliceMasks(c.node().attrs),
                               [&c](const std::string& message) { c.fail(message); });
}

void infer_slice(InferContext& c) { c.output(c.dtype(0), infer_range(c, c.shape(0)).output); }

void infer_slice_grad(InferContext& c) {
  c.require_rank(0, 1);
  require_index_dtype(c, 0);
  if (!c.value(0)) return c.output(c.dtype(4), Shape::unknown_rank());
  const Shape whole(tensor_to_int64s(*c.value(0)));
  const Shape expected = infer_range(c, whole).output;
  Shape merged;
  if (!merge_shapes(expected, c.shape(4), merged))
    c.fail(
        fmt::format("the gradient must have shape {}, got {}", expected.to_string(), c.shape(4).to_string()));
  c.output(c.dtype(4), whole);
}

/// The copy between the slice and its places in `whole`.
BoxCopy range_copy(const PrepareContext& c, const Shape& whole, std::size_t element_bytes, bool into_whole) {
  const auto value = [&](std::size_t i) { return tensor_to_int64s(*c.values[i]); };
  const StridedRange range =
      resolve_strided_range(whole, c.inputs[1].shape[0], {value(1), value(2), value(3)},
                            SliceMasks(c.node.attrs), [&c](const std::string& message) { c.fail(message); });
  const std::vector<std::int64_t> strides = row_major_strides(whole);
  std::vector<BoxAxis> axes(range.axes.size());
  std::int64_t offset = 0, packed = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const AxisRange& taken = range.axes[i];
    offset += taken.begin * strides[i];
    axes[i] = {taken.size, taken.stride * strides[i], packed};
    packed *= taken.size;
    if (into_whole) std::swap(axes[i].src_stride, axes[i].dst_stride);
  }
  return BoxCopy(axes, into_whole ? 0 : offset, into_whole ? offset : 0, element_bytes);
}

AttrMap masks_of(const Node& node) {
  AttrMap masks;
  for (const char* name : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"})
    masks.set(name, node.attrs.get(name, std::int64_t{0}));
  return masks;
}

void slice_gradient(GradContext& c) {
  const ValueRef shape = c.op("Shape", {c.input(0)}, {{"out_type", c.input_info(1).dtype}});
  c.set_grad(
      0, c.op("StridedSliceGrad", {shape, c.input(1), c.input(2), c.input(3), c.grad()}, masks_of(c.node())));
}

void slice_grad_gradient(GradContext& c) {
  c.set_grad(4, c.op("StridedSlice", {c.grad(), c.input(1), c.input(2), c.input(3)}, masks_of(c.node())));
}

}  // namespace

BoxPlan plans::strided_slice(const PrepareContext& c) {
  return {{{range_copy(c, c.inputs[0].shape, dtype_size(c.inputs[0].dtype), false), 0, 0}}};
}

BoxPlan plans::strided_slice_grad(const PrepareContext& c) {
  return {{{range_copy(c, c.outputs[0].shape, dtype_size(c.outputs[0].dtype), true), 4, 0}}, true};
}

void register_strided_slice(OpRegistry& registry) {
  registry.add({.name = "StridedSlice",
                .traits = moves().any_type().on_string_ids().type_attrs({{"T", 0}, {"Index", 1}}),
                .min_inputs = 4,
                .max_inputs = 4,
                .infer = infer_slice,
                .gradient = slice_gradient,
                .cpu = prepare_boxes<plans::strided_slice>,
                .shape_values = {1, 2, 3}});
  registry.add({.name = "StridedSliceGrad",
                .traits = moves(),
                .min_inputs = 5,
                .max_inputs = 5,
                .infer = infer_slice_grad,
                .gradient = slice_grad_gradient,
                .cpu = prepare_boxes<plans::strided_slice_grad>,
                .shape_values = {0, 1, 2, 3}});
}

}  // namespace braid
