// Concat(axis, x...) and ConcatV2(x..., axis) join tensors along an axis; braid.SplitLike(axis, y, like...)
// is the inverse and their gradient: output i is the part of y that has the shape of like[i], of which only
// the shape is used. ConcatOffset(axis, shapes...) gives where each part starts.
// braid.PutColumns(x [rows, columns], part...) is x with the columns from offsets[i] on taken from part i. It
// changes x where nobody else reads it.
#include <fmt/format.h>

#include "engine/ops/array/variadic.h"
#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/device_boxes.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// The parts of a concatenation among a node's inputs.
struct Layout {
  int axis_input;
  int first;
  int count;
};

Layout layout_of(const Node& node) {
  const int n = static_cast<int>(node.inputs.size());
  return node.op->name == "ConcatV2" ? Layout{n - 1, 0, n - 1} : Layout{0, 1, n - 1};
}

/// The value of a scalar axis, if known.
std::optional<std::int64_t> axis_value(const InferContext& c, int input) {
  c.require_rank(input, 0);
  require_index_dtype(c, input);
  const Tensor* value = c.value(input);
  if (!value) return std::nullopt;
  return tensor_to_int64s(*value)[0];
}

void infer_concat(InferContext& c) {
  const auto [axis_input, first, count] = layout_of(c.node());
  const std::optional<std::int64_t> requested = axis_value(c, axis_input);
  Shape out = Shape::unknown_rank();
  for (int i = first; i < first + count; ++i) {
    c.require_same_dtype(first, i);
    if (!out.has_rank() && c.shape(i).has_rank()) out = c.shape(i);
  }
  if (!out.has_rank()) return c.output(c.dtype(first), out);
  if (out.rank() == 0) c.fail("scalars cannot be concatenated");
  if (!requested) {
    out = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(out.rank()), Shape::kUnknown));
    return c.output(c.dtype(first), out);
  }
  const int axis = normalized_axis(c, *requested, out.rank());
  std::int64_t total = 0;
  for (int i = first; i < first + count; ++i) {
    const Shape& part = c.shape(i);
    if (!part.has_rank()) {
      total = Shape::kUnknown;
      continue;
    }
    if (part.rank() == out.rank() && total != Shape::kUnknown)
      total = part[axis] == Shape::kUnknown ? Shape::kUnknown : total + part[axis];
    Shape other = part;
    if (part.rank() == out.rank()) other.set_dim(axis, out[axis]);
    Shape merged;
    if (!merge_shapes(out, other, merged))
      c.fail(fmt::format("input {} of shape {} does not join shape {} on axis {}", i, part.to_string(),
                         c.shape(first).to_string(), axis));
    merged.set_dim(axis, out[axis]);
    out = merged;
  }
  out.set_dim(axis, total);
  c.output(c.dtype(first), out);
}

/// One copy a part; `into_whole` for concatenation of the inputs from `first` on, else into the outputs.
BoxPlan part_copies(const PrepareContext& c, const Shape& whole, std::span<const OutputInfo> parts,
                    std::int64_t axis_value, bool into_whole, int first) {
  const int axis = static_cast<int>(axis_value < 0 ? axis_value + whole.rank() : axis_value);
  const std::vector<std::int64_t> whole_strides = row_major_strides(whole);
  BoxPlan plan;
  std::int64_t offset = 0;
  for (const OutputInfo& part : parts) {
    const std::vector<std::int64_t> part_strides = row_major_strides(part.shape);
    std::vector<BoxAxis> axes;
    for (std::size_t i = 0; i < part_strides.size(); ++i) {
      BoxAxis a{part.shape[static_cast<int>(i)], part_strides[i], whole_strides[i]};
      if (!into_whole) std::swap(a.src_stride, a.dst_stride);
      axes.push_back(a);
    }
    const int position = static_cast<int>(plan.parts.size());
    plan.parts.push_back(
        {BoxCopy(axes, into_whole ? 0 : offset, into_whole ? offset : 0, dtype_size(part.dtype)),
         into_whole ? first + position : first, into_whole ? 0 : position});
    offset += part.shape[axis] * whole_strides[static_cast<std::size_t>(axis)];
  }
  if (whole.rank() == 0) c.fail("scalars cannot be concatenated");
  return plan;
}

void concat_gradient(GradContext& c) {
  const auto [axis_input, first, count] = layout_of(c.node());
  std::vector<ValueRef> inputs{c.input(axis_input), c.grad()};
  for (int i = first; i < first + count; ++i) inputs.push_back(c.input(i));
  const ValueRef parts = c.op("braid.SplitLike", std::move(inputs));
  for (int i = 0; i < count; ++i) c.set_grad(first + i, ValueRef{parts.node, i});
}

void infer_split_like(InferContext& c) {
  const std::optional<std::int64_t> axis = axis_value(c, 0);
  if (axis && c.shape(1).has_rank()) normalized_axis(c, *axis, c.shape(1).rank());
  for (int i = 2; i < c.inputs(); ++i) c.output(c.dtype(1), c.shape(i));
}

void split_like_gradient(GradContext& c) {
  std::vector<ValueRef> inputs;
  for (int i = 2; i < static_cast<int>(c.node().inputs.size()); ++i)
    inputs.push_back(c.grad(i - 2).valid() ? c.grad(i - 2) : c.op("ZerosLike", {c.output(i - 2)}));
  inputs.push_back(c.input(0));
  c.set_grad(1, c.op("ConcatV2", std::move(inputs)));
}

constexpr const char* kOffsets = "offsets";

void infer_put_columns(InferContext& c) {
  c.require_rank(0, 2);
  const auto offsets = c.attr(kOffsets, std::vector<std::int64_t>{});
  if (std::ssize(offsets) != c.inputs() - 1) c.fail("offsets has not one for each part");
  std::int64_t end = 0;
  for (int i = 1; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    c.require_rank(i, 2);
    const Shape &x = c.shape(0), &part = c.shape(i);
    if (!x.is_static() || !part.is_static()) continue;
    const std::int64_t first = offsets[static_cast<std::size_t>(i - 1)];
    if (part[0] != x[0] || first < end || first + part[1] > x[1])
      c.fail(fmt::format("part {} of shape {} has no place of its own in shape {} from column {} on", i,
                         part.to_string(), x.to_string(), first));
    end = first + part[1];
  }
  c.output(c.dtype(0), c.shape(0));
}

/// The parts, and with `whole` what is between them.
BoxPlan put_columns(const PrepareContext& c, bool whole) {
  const auto offsets = c.attr(kOffsets, std::vector<std::int64_t>{});
  const std::int64_t rows = c.outputs[0].shape[0], width = c.outputs[0].shape[1];
  BoxPlan plan;
  const auto copy = [&](int input, std::int64_t from, std::int64_t stride, std::int64_t to,
                        std::int64_t columns) {
    if (columns > 0)
      plan.parts.push_back(
          {BoxCopy({{rows, stride, width}, {columns, 1, 1}}, from, to, dtype_size(c.outputs[0].dtype)), input,
           0});
  };
  std::int64_t end = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (whole) copy(0, end, width, end, offsets[i] - end);
    const std::int64_t columns = c.inputs[i + 1].shape[1];
    copy(static_cast<int>(i) + 1, 0, columns, offsets[i], columns);
    end = offsets[i] + columns;
  }
  if (whole) copy(0, end, width, end, width - end);
  return plan;
}

PreparedKernel prepare_put_columns(const PrepareContext& c,
                                   PreparedKernel (*boxes)(const PrepareContext&, BoxPlan)) {
  PreparedKernel kernel;
  kernel.run = [parts = boxes(c, put_columns(c, false)), whole = boxes(c, put_columns(c, true))](
                   const KernelArgs& a) { (a.outputs[0] == a.inputs[0] ? parts : whole).run(a); };
  return kernel;
}

/// Where it changes x, that is all it does.
Cost put_columns_cost(const InferContext& c, std::span<const OutputInfo>) {
  double bytes = 0;
  for (int i = 1; i < c.inputs(); ++i) bytes += 2 * known_bytes({c.dtype(i), c.shape(i)});
  return {0, bytes};
}

void infer_concat_offset(InferContext& c) {
  c.require_rank(0, 0);
  for (int i = 1; i < c.inputs(); ++i) {
    c.require_rank(i, 1);
    require_dtype(c, i, {DType::Int32});
    c.output(DType::Int32, merged_shape(c, 1, i));
  }
}

PreparedKernel prepare_concat_offset(const PrepareContext& c) {
  const std::int64_t rank = c.inputs[1].shape[0];
  const std::size_t parts = c.outputs.size();
  return serial_kernel([rank, parts, place = place_of(c.node)](const KernelArgs& a) {
    std::int64_t axis = a.in<std::int32_t>(0)[0];
    if (axis < -rank || axis >= rank)
      throw InvalidArgument(fmt::format("{}: axis {} is out of range for rank {}", place, axis, rank));
    if (axis < 0) axis += rank;
    std::int32_t offset = 0;
    for (std::size_t i = 0; i < parts; ++i) {
      std::int32_t* out = a.out<std::int32_t>(static_cast<int>(i));
      for (std::int64_t d = 0; d < rank; ++d) out[d] = d == axis ? offset : 0;
      offset += a.in<std::int32_t>(static_cast<int>(i) + 1)[axis];
    }
  });
}

}  // namespace

PreparedKernel device_put_columns(const PrepareContext& c) {
  return prepare_put_columns(c, device_box_kernel);
}

BoxPlan plans::concat(const PrepareContext& c) {
  const auto [axis_input, first, count] = layout_of(c.node);
  const auto parts = c.inputs.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  const std::int64_t axis = tensor_to_int64s(*c.values[static_cast<std::size_t>(axis_input)])[0];
  return part_copies(c, c.outputs[0].shape, parts, axis, true, first);
}

BoxPlan plans::split_like(const PrepareContext& c) {
  return part_copies(c, c.inputs[1].shape, c.outputs, tensor_to_int64s(*c.values[0])[0], false, 1);
}

void register_concat(OpRegistry& registry) {
  registry.add({.name = "Concat",
                .traits = moves().any_type().on_string_ids(),
                .min_inputs = 2,
                .max_inputs = -1,
                .infer = infer_concat,
                .gradient = concat_gradient,
                .cpu = prepare_boxes<plans::concat>,
                .shape_values = {0}});
  registry.add({.name = "ConcatV2",
                .traits = moves().any_type().on_string_ids().type_attrs({{"T", 0}, {"Tidx", -1}}),
                .min_inputs = 2,
                .max_inputs = -1,
                .infer = infer_concat,
                .gradient = concat_gradient,
                .cpu = prepare_boxes<plans::concat>,
                .shape_values = {-1}});
  registry.add({.name = "braid.SplitLike",
                .traits = moves().any_type().output_list(),
                .min_inputs = 3,
                .max_inputs = -1,
                .infer = infer_split_like,
                .gradient = split_like_gradient,
                .cpu = prepare_boxes<plans::split_like>,
                .shape_values = {0},
                .shape_only = inputs_from(2)});
  registry.add({.name = "braid.PutColumns",
                .traits = moves().any_type(),
                .min_inputs = 2,
                .max_inputs = -1,
                .infer = infer_put_columns,
                .no_gradient_reason = "the compiler makes it, after gradients are made",
                .cost = put_columns_cost,
                .cpu = [](const PrepareContext& c) { return prepare_put_columns(c, host_box_kernel); },
                .in_place = {{0, 0}}});
  registry.add({.name = "ConcatOffset",
                .traits = computes().output_list(),
                .min_inputs = 2,
                .max_inputs = -1,
                .infer = infer_concat_offset,
                .no_gradient_reason = "its outputs are integers",
                .cpu = prepare_concat_offset});
}

}  // namespace braid
