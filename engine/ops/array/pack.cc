// Pack(x0 ... xn-1) stacks n tensors of one shape along a new axis (attribute axis); Unpack takes them apart
// again (attributes num, axis). Each is the gradient of the other.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

Shape with_axis(const Shape& part, int axis, std::int64_t size) {
  std::vector<std::int64_t> dims(part.dims().begin(), part.dims().end());
  dims.insert(dims.begin() + axis, size);
  return Shape(std::move(dims));
}

std::int64_t axis_attr(const Node& node) { return node.attrs.get("axis", std::int64_t{0}); }

void infer_pack(InferContext& c) {
  Shape part = c.shape(0);
  for (int i = 1; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    Shape merged;
    if (!merge_shapes(part, c.shape(i), merged))
      c.fail(
          fmt::format("input {} has shape {}, the others {}", i, c.shape(i).to_string(), part.to_string()));
    part = merged;
  }
  if (!part.has_rank()) return c.output(c.dtype(0), part);
  c.output(c.dtype(0), with_axis(part, normalized_axis(c, axis_attr(c.node()), part.rank() + 1), c.inputs()));
}

void infer_unpack(InferContext& c) {
  const std::int64_t num = c.node().attrs.require<std::int64_t>("num");
  const Shape& whole = c.shape(0);
  Shape part = Shape::unknown_rank();
  if (whole.has_rank()) {
    const int axis = normalized_axis(c, axis_attr(c.node()), whole.rank());
    if (whole[axis] != Shape::kUnknown && whole[axis] != num)
      c.fail(fmt::format("dimension {} of shape {} is not num = {}", axis, whole.to_string(), num));
    std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
    dims.erase(dims.begin() + axis);
    part = Shape(std::move(dims));
  }
  for (std::int64_t i = 0; i < num; ++i) c.output(c.dtype(0), part);
}

/// A copy a part, between the part and its place in `whole`; `pack` says in which direction.
BoxPlan part_copies(const PrepareContext& c, const Shape& whole, std::size_t parts, bool pack) {
  std::int64_t axis = axis_attr(c.node);
  if (axis < 0) axis += whole.rank();
  std::vector<std::int64_t> strides = row_major_strides(whole);
  const std::int64_t step = strides[static_cast<std::size_t>(axis)];
  std::vector<BoxAxis> axes;
  std::int64_t part_stride = parts == 0 ? 1 : whole.elements() / static_cast<std::int64_t>(parts);
  for (int i = 0; i < whole.rank(); ++i) {
    if (i == axis) continue;
    part_stride = whole[i] == 0 ? 0 : part_stride / whole[i];
    BoxAxis a{whole[i], part_stride, strides[static_cast<std::size_t>(i)]};
    if (!pack) std::swap(a.src_stride, a.dst_stride);
    axes.push_back(a);
  }
  BoxPlan plan;
  for (int i = 0; i < static_cast<int>(parts); ++i) {
    const std::int64_t offset = i * step;
    plan.parts.push_back({BoxCopy(axes, pack ? 0 : offset, pack ? offset : 0, dtype_size(c.inputs[0].dtype)),
                          pack ? i : 0, pack ? 0 : i});
  }
  return plan;
}

void pack_gradient(GradContext& c) {
  const int parts = static_cast<int>(c.node().inputs.size());
  const ValueRef unpacked = c.op("Unpack", {c.grad()}, {{"num", parts}, {"axis", axis_attr(c.node())}});
  for (int i = 0; i < parts; ++i) c.set_grad(i, ValueRef{unpacked.node, i});
}

void unpack_gradient(GradContext& c) {
  std::vector<ValueRef> parts;
  for (int i = 0; i < static_cast<int>(c.node().outputs.size()); ++i)
    parts.push_back(c.grad(i).valid() ? c.grad(i) : c.op("ZerosLike", {c.output(i)}));
  c.set_grad(0, c.op("Pack", std::move(parts), {{"axis", axis_attr(c.node())}}));
}

}  // namespace

BoxPlan plans::pack(const PrepareContext& c) {
  return part_copies(c, c.outputs[0].shape, c.inputs.size(), true);
}

BoxPlan plans::unpack(const PrepareContext& c) {
  return part_copies(c, c.inputs[0].shape, c.outputs.size(), false);
}

void register_pack(OpRegistry& registry) {
  registry.add({.name = "Pack",
                .traits = moves().any_type().on_string_ids(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_pack,
                .gradient = pack_gradient,
                .cpu = prepare_boxes<plans::pack>});
  registry.add({.name = "Unpack",
                .traits = moves().any_type().on_string_ids().output_list(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_unpack,
                .gradient = unpack_gradient,
                .cpu = prepare_boxes<plans::unpack>});
}

}  // namespace braid
