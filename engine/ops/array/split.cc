// Split(axis, x) into num_split equal parts and SplitV(x, sizes, axis), where one size may be -1 (what is
// left). Gradient: the parts' gradients joined; a part without one counts as zeros.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

struct Layout {
  int value_input;
  int axis_input;
};

Layout layout_of(const Node& node) { return node.op->name == "SplitV" ? Layout{0, 2} : Layout{1, 0}; }

int part_count(const InferContext& c) {
  const std::int64_t parts = c.attr("num_split", std::int64_t{0});
  if (parts < 1) c.fail(fmt::format("attribute num_split must be at least 1, got {}", parts));
  return static_cast<int>(parts);
}

/// The sizes of the parts along the axis, as far as they are known.
std::vector<std::int64_t> part_sizes(const InferContext& c, int parts, std::int64_t whole) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), Shape::kUnknown);
  if (c.node().op->name == "Split") {
    if (whole == Shape::kUnknown) return sizes;
    if (whole % parts != 0) c.fail(fmt::format("a dimension of {} has no {} equal parts", whole, parts));
    sizes.assign(sizes.size(), whole / parts);
    return sizes;
  }
  c.require_rank(1, 1);
  if (!c.value(1)) return sizes;
  sizes = tensor_to_int64s(*c.value(1));
  if (static_cast<int>(sizes.size()) != parts)
    c.fail(fmt::format("{} sizes for {} parts", sizes.size(), parts));
  std::int64_t sum = 0;
  std::int64_t* rest = nullptr;
  for (std::int64_t& size : sizes) {
    if (size < -1) c.fail(fmt::format("a part has size {}", size));
    if (size == -1 && rest) c.fail("more than one size is -1");
    if (size == -1)
      rest = &size;
    else
      sum += size;
  }
  if (whole == Shape::kUnknown) return sizes;
  if (rest ? sum > whole : sum != whole)
    c.fail(fmt::format("sizes add up to {}, the dimension has {}", sum, whole));
  if (rest) *rest = whole - sum;
  return sizes;
}

void infer_split(InferContext& c) {
  const auto [value_input, axis_input] = layout_of(c.node());
  c.require_rank(axis_input, 0);
  require_index_dtype(c, axis_input);
  const int parts = part_count(c);
  Shape shape = c.shape(value_input);
  const Tensor* axis_value = c.value(axis_input);
  if (shape.has_rank() && axis_value) {
    const int axis = normalized_axis(c, tensor_to_int64s(*axis_value)[0], shape.rank());
    for (std::int64_t size : part_sizes(c, parts, shape[axis])) {
      shape.set_dim(axis, size);
      c.output(c.dtype(value_input), shape);
    }
    return;
  }
  if (shape.has_rank())
    shape = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank()), Shape::kUnknown));
  for (int i = 0; i < parts; ++i) c.output(c.dtype(value_input), shape);
}

void split_gradient(GradContext& c) {
  const auto [value_input, axis_input] = layout_of(c.node());
  std::vector<ValueRef> parts;
  for (int i = 0; i < static_cast<int>(c.node().outputs.size()); ++i)
    parts.push_back(c.grad(i).valid() ? c.grad(i) : c.op("ZerosLike", {c.output(i)}));
  if (parts.size() == 1) return c.set_grad(value_input, parts[0]);
  parts.push_back(c.input(axis_input));
  c.set_grad(value_input, c.op("ConcatV2", std::move(parts)));
}

}  // namespace

BoxPlan plans::split(const PrepareContext& c) {
  const auto [value_input, axis_input] = layout_of(c.node);
  const Shape& whole = c.inputs[static_cast<std::size_t>(value_input)].shape;
  const std::vector<std::int64_t> src = row_major_strides(whole);
  std::int64_t axis = tensor_to_int64s(*c.values[static_cast<std::size_t>(axis_input)])[0];
  if (axis < 0) axis += whole.rank();
  BoxPlan plan;
  std::int64_t offset = 0;
  for (const OutputInfo& part : c.outputs) {
    const std::vector<std::int64_t> dst = row_major_strides(part.shape);
    std::vector<BoxAxis> axes;
    for (std::size_t i = 0; i < src.size(); ++i)
      axes.push_back({part.shape[static_cast<int>(i)], src[i], dst[i]});
    plan.parts.push_back(
        {BoxCopy(axes, offset, 0, dtype_size(part.dtype)), value_input, static_cast<int>(plan.parts.size())});
    offset += part.shape[static_cast<int>(axis)] * src[static_cast<std::size_t>(axis)];
  }
  return plan;
}

void register_split(OpRegistry& registry) {
  registry.add({.name = "Split",
                .traits = moves().any_type().on_string_ids().output_list(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_split,
                .gradient = split_gradient,
                .cpu = prepare_boxes<plans::split>,
                .shape_values = {0}});
  registry.add(
      {.name = "SplitV",
       .traits = moves().any_type().on_string_ids().output_list().type_attrs({{"T", 0}, {"Tlen", 1}}),
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_split,
       .gradient = split_gradient,
       .cpu = prepare_boxes<plans::split>,
       .shape_values = {1, 2}});
}

}  // namespace braid
