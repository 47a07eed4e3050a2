// Slice(x, begin, size): the box of `size` at `begin`; a size of -1 goes to the end. braid.SliceGrad(dy,
// begin, like): zeros in the shape of `like` with dy at `begin`, its gradient.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_slice(InferContext& c) {
  for (int i : {1, 2}) {
    c.require_rank(i, 1);
    require_index_dtype(c, i);
  }
  Shape shape = c.shape(0);
  if (!shape.has_rank() && c.shape(1).is_static())
    shape = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(1)[0]), Shape::kUnknown));
  if (!shape.has_rank()) return c.output(c.dtype(0), shape);
  const Tensor* begin_value = c.value(1);
  const Tensor* size_value = c.value(2);
  std::vector<std::int64_t> begin, size;
  if (begin_value) begin = tensor_to_int64s(*begin_value);
  if (size_value) size = tensor_to_int64s(*size_value);
  const auto rank = static_cast<std::size_t>(shape.rank());
  if ((begin_value && begin.size() != rank) || (size_value && size.size() != rank))
    c.fail(fmt::format("begin and size must have {} elements for shape {}", rank, shape.to_string()));
  std::vector<std::int64_t> dims(rank, Shape::kUnknown);
  for (std::size_t i = 0; i < rank && size_value; ++i) {
    const std::int64_t whole = shape[static_cast<int>(i)];
    if (size[i] != -1)
      dims[i] = size[i];
    else if (begin_value && whole != Shape::kUnknown)
      dims[i] = whole - begin[i];
    if (size[i] < -1 || (begin_value && begin[i] < 0) ||
        (begin_value && whole != Shape::kUnknown && dims[i] != Shape::kUnknown &&
         (dims[i] < 0 || begin[i] + dims[i] > whole)))
      c.fail(fmt::format("begin {} and size {} on axis {} leave shape {}", begin_value ? begin[i] : 0,
                         size[i], i, shape.to_string()));
  }
  c.output(c.dtype(0), Shape(std::move(dims)));
}

/// The box of `part` at `begin` inside `whole`; copies out of the whole, or into it.
BoxCopy box_copy(const Shape& whole, const Shape& part, const std::vector<std::int64_t>& begin,
                 std::size_t element_bytes, bool into_whole) {
  const std::vector<std::int64_t> whole_strides = row_major_strides(whole);
  const std::vector<std::int64_t> part_strides = row_major_strides(part);
  std::vector<BoxAxis> axes;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    offset += begin[i] * whole_strides[i];
    BoxAxis axis{part[static_cast<int>(i)], whole_strides[i], part_strides[i]};
    if (into_whole) std::swap(axis.src_stride, axis.dst_stride);
    axes.push_back(axis);
  }
  return BoxCopy(axes, into_whole ? 0 : offset, into_whole ? offset : 0, element_bytes);
}

void slice_gradient(GradContext& c) {
  c.set_grad(0, c.op("braid.SliceGrad", {c.grad(), c.input(1), c.input(0)}));
}

void infer_slice_grad(InferContext& c) { c.output(c.dtype(0), c.shape(2)); }

void slice_grad_gradient(GradContext& c) {
  const ValueRef size = c.op("Shape", {c.input(0)}, {{"out_type", c.input_info(1).dtype}});
  c.set_grad(0, c.op("Slice", {c.grad(), c.input(1), size}));
}

}  // namespace

BoxPlan plans::slice(const PrepareContext& c) {
  return {{{box_copy(c.inputs[0].shape, c.outputs[0].shape, tensor_to_int64s(*c.values[1]),
                     dtype_size(c.inputs[0].dtype), false),
            0, 0}}};
}

BoxPlan plans::slice_grad(const PrepareContext& c) {
  return {{{box_copy(c.outputs[0].shape, c.inputs[0].shape, tensor_to_int64s(*c.values[1]),
                     dtype_size(c.inputs[0].dtype), true),
            0, 0}},
          true};
}

void register_slice(OpRegistry& registry) {
  registry.add({.name = "Slice",
                .traits = moves().any_type().on_string_ids().type_attrs({{"T", 0}, {"Index", 1}}),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_slice,
                .gradient = slice_gradient,
                .cpu = prepare_boxes<plans::slice>,
                .shape_values = {1, 2}});
  registry.add({.name = "braid.SliceGrad",
                .traits = moves(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_slice_grad,
                .gradient = slice_grad_gradient,
                .cpu = prepare_boxes<plans::slice_grad>,
                .shape_values = {1},
                .shape_only = {2}});
}

}  // namespace braid
