// SpaceToDepth(x): moves each block of block_size x block_size places of an image into channels, the place
// inside the block being the slower index; DepthToSpace(x) undoes it. Attributes block_size, data_format
// (NHWC, NCHW). Each is the other's gradient.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

struct Axes {
  int channel, height, width;
};

template <class Context>
Axes image_axes(const Context& c) {
  const std::string format = c.attr("data_format", std::string("NHWC"));
  if (format == "NHWC") return {3, 1, 2};
  if (format == "NCHW") return {1, 2, 3};
  c.fail("data_format must be NHWC or NCHW, got '" + format + "'");
}

void infer(InferContext& c, bool to_depth) {
  c.require_rank(0, 4);
  const auto block = c.node().attrs.require<std::int64_t>("block_size");
  if (block < 1) c.fail(fmt::format("block_size is {}", block));
  const Axes at = image_axes(c);
  Shape out = c.shape(0).has_rank() ? c.shape(0) : Shape{-1, -1, -1, -1};
  const auto divide = [&](int axis, std::int64_t by) {
    if (out[axis] == Shape::kUnknown) return;
    if (out[axis] % by != 0)
      c.fail(fmt::format("axis {} of shape {} is no multiple of {}", axis, c.shape(0).to_string(), by));
    out.set_dim(axis, out[axis] / by);
  };
  const auto multiply = [&](int axis, std::int64_t by) {
    if (out[axis] != Shape::kUnknown) out.set_dim(axis, out[axis] * by);
  };
  for (const int axis : {at.height, at.width}) to_depth ? divide(axis, block) : multiply(axis, block);
  to_depth ? multiply(at.channel, block * block) : divide(at.channel, block * block);
  c.output(c.dtype(0), out);
}

template <bool kToDepth>
BoxPlan plan(const PrepareContext& c) {
  const Axes at = image_axes(c);
  const auto block = c.attr("block_size", std::int64_t{1});
  const Shape& image = kToDepth ? c.inputs[0].shape : c.outputs[0].shape;
  const Shape& deep = kToDepth ? c.outputs[0].shape : c.inputs[0].shape;
  const auto i = row_major_strides(image), d = row_major_strides(deep);
  const auto stride = [](const std::vector<std::int64_t>& strides, int axis) {
    return strides[static_cast<std::size_t>(axis)];
  };
  const std::int64_t channels = image[at.channel], in_block = channels * stride(d, at.channel);
  // Of the image: batch, blocks down, blocks across, place in the block down and across, channel.
  std::vector<BoxAxis> axes = {{image[0], i[0], d[0]},
                               {deep[at.height], block * stride(i, at.height), stride(d, at.height)},
                               {deep[at.width], block * stride(i, at.width), stride(d, at.width)},
                               {block, stride(i, at.height), block * in_block},
                               {block, stride(i, at.width), in_block},
                               {channels, stride(i, at.channel), stride(d, at.channel)}};
  if (!kToDepth)
    for (BoxAxis& axis : axes) std::swap(axis.src_stride, axis.dst_stride);
  return {{{BoxCopy(axes, 0, 0, dtype_size(c.inputs[0].dtype)), 0, 0}}};
}

template <const char* undo>
void gradient(GradContext& c) {
  c.set_grad(0, c.op(undo, {c.grad()},
                     {{"block_size", c.node().attrs.require<std::int64_t>("block_size")},
                      {"data_format", c.node().attrs.get<std::string>("data_format", "NHWC")}}));
}
constexpr char kToDepthName[] = "SpaceToDepth", kToSpaceName[] = "DepthToSpace";

}  // namespace

BoxPlan plans::space_to_depth(const PrepareContext& c) { return plan<true>(c); }
BoxPlan plans::depth_to_space(const PrepareContext& c) { return plan<false>(c); }

void register_space_to_depth(OpRegistry& registry) {
  registry.add({.name = kToDepthName,
                .traits = moves().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = [](InferContext& c) { infer(c, true); },
                .gradient = gradient<kToSpaceName>,
                .cpu = prepare_boxes<plans::space_to_depth>});
  registry.add({.name = kToSpaceName,
                .traits = moves().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = [](InferContext& c) { infer(c, false); },
                .gradient = gradient<kToDepthName>,
                .cpu = prepare_boxes<plans::depth_to_space>});
}

}  // namespace braid
