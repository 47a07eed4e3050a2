// Pad(x, paddings [rank, 2]) with zeros, PadV2(x, paddings, value) with a value. braid.PadGrad(dy, paddings,
// like): the inner part of dy, in the shape of `like`.
#include "engine/ops/array/paddings.h"
#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

void infer_pad(InferContext& c) {
  const Paddings paddings = require_paddings(c);
  if (c.inputs() > 2) {
    c.require_rank(2, 0);
    c.require_same_dtype(0, 2);
  }
  const Shape& in = c.shape(0);
  if (paddings.rank == Shape::kUnknown) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(paddings.rank), Shape::kUnknown);
  for (std::size_t i = 0; i < dims.size() && in.has_rank() && !paddings.values.empty(); ++i) {
    const std::int64_t dim = in[static_cast<int>(i)];
    if (dim != Shape::kUnknown) dims[i] = dim + paddings.values[2 * i] + paddings.values[2 * i + 1];
  }
  c.output(c.dtype(0), Shape(std::move(dims)));
}

/// The copy between `inner` and its place in `outer`.
BoxCopy inner_copy(const PrepareContext& c, const Shape& outer, const Shape& inner, bool into_outer) {
  const std::vector<std::int64_t> pads = tensor_to_int64s(*c.values[1]);
  const std::vector<std::int64_t> outer_strides = row_major_strides(outer);
  const std::vector<std::int64_t> inner_strides = row_major_strides(inner);
  std::vector<BoxAxis> axes;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < inner_strides.size(); ++i) {
    offset += pads[2 * i] * outer_strides[i];
    BoxAxis axis{inner[static_cast<int>(i)], outer_strides[i], inner_strides[i]};
    if (into_outer) std::swap(axis.src_stride, axis.dst_stride);
    axes.push_back(axis);
  }
  return BoxCopy(axes, into_outer ? 0 : offset, into_outer ? offset : 0, dtype_size(c.inputs[0].dtype));
}

/// PadV2: a value all around, then the inner part.
PreparedKernel prepare_pad_value(const PrepareContext& c) {
  const std::int64_t elements = c.outputs[0].shape.elements();
  return with_number_or_bool("PadV2", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([copy = inner_copy(c, c.outputs[0].shape, c.inputs[0].shape, true), elements,
                          pool = &c.pool](const KernelArgs& a) {
      const T value = a.in<T>(2)[0];
      pool->parallel_range(elements, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        std::fill(a.out<T>(0) + begin, a.out<T>(0) + end, value);
      });
      copy.run(*pool, a.inputs[0], a.outputs[0]);
    });
  });
}

void pad_gradient(GradContext& c) {
  c.set_grad(0, c.op("braid.PadGrad", {c.grad(), c.input(1), c.input(0)}));
  if (c.node().inputs.size() < 3) return;
  // What the value gets is what the inner part does not.
  const ValueRef all = c.op("braid.ReduceToShapeOf", {c.grad(), c.input(2)});
  const ValueRef inner =
      c.op("braid.ReduceToShapeOf", {c.op("braid.PadGrad", {c.grad(), c.input(1), c.input(0)}), c.input(2)});
  c.set_grad(2, c.op("Sub", {all, inner}));
}

void infer_pad_grad(InferContext& c) { c.output(c.dtype(0), c.shape(2)); }

}  // namespace

BoxPlan plans::pad(const PrepareContext& c) {
  return {{{inner_copy(c, c.outputs[0].shape, c.inputs[0].shape, true), 0, 0}}, true};
}

BoxPlan plans::pad_grad(const PrepareContext& c) {
  return {{{inner_copy(c, c.inputs[0].shape, c.outputs[0].shape, false), 0, 0}}};
}

void register_pad(OpRegistry& registry) {
  OpDef pad{.name = "Pad",
            .traits = moves().type_attrs({{"T", 0}, {"Tpaddings", 1}}),
            .min_inputs = 2,
            .max_inputs = 2,
            .infer = infer_pad,
            .gradient = pad_gradient,
            .cpu = prepare_boxes<plans::pad>,
            .shape_values = {1}};
  registry.add(pad);
  pad.name = "PadV2";
  pad.min_inputs = pad.max_inputs = 3;
  pad.cpu = prepare_pad_value;
  registry.add(std::move(pad));
  registry.add({.name = "braid.PadGrad",
                .traits = moves(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_pad_grad,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("Pad", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare_boxes<plans::pad_grad>,
                .shape_values = {1},
                .shape_only = {2}});
}

}  // namespace braid
