// SpaceToBatchND(x, block_shape [M], paddings [M, 2]): zero-pads the M axes behind the batch and moves each
// place inside a block of block_shape to a batch of its own; BatchToSpaceND(x, block_shape, crops [M, 2])
// undoes it. Each is the other's gradient. SpaceToBatch and BatchToSpace have two such axes and attribute
// block_size. Dilated convolutions are exported in this form.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// The operands of both forms: x, block_shape, paddings, or x, paddings with attribute block_size.
struct Operands {
  int paddings;
  std::vector<std::int64_t> block;  // empty: not known yet
  std::vector<std::int64_t> pads;   // empty: not known yet, or no axes

  template <class Values>
  Operands(const AttrMap& attrs, int inputs, Values value) : paddings(inputs - 1) {
    if (inputs == 2)
      block.assign(2, attrs.require<std::int64_t>("block_size"));
    else if (const Tensor* t = value(1))
      block = tensor_to_int64s(*t);
    if (const Tensor* t = value(paddings)) pads = tensor_to_int64s(*t);
  }
};

void infer(InferContext& c, bool to_batch) {
  const int paddings = c.inputs() - 1;
  const Operands o(c.node().attrs, c.inputs(), [&](int i) { return c.value(i); });
  for (int i = 1; i < c.inputs(); ++i) {
    require_index_dtype(c, i);
    c.require_rank(i, i == paddings ? 2 : 1);
  }
  Shape out = c.shape(0);
  const bool block_known = c.inputs() == 2 || c.value(1), pads_known = c.value(paddings) != nullptr;
  if (!out.has_rank() || !block_known) {
    if (out.has_rank()) out = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(out.rank()), -1));
    return c.output(c.dtype(0), out);
  }
  const auto axes = static_cast<int>(o.block.size());
  if (out.rank() <= axes) c.fail(fmt::format("{} blocks for shape {}", axes, out.to_string()));
  if (pads_known && o.pads.size() != 2 * o.block.size())
    c.fail(fmt::format("{} blocks, {} paddings", axes, o.pads.size() / 2));
  std::int64_t blocks = 1;
  for (int i = 0; i < axes; ++i) {
    const std::int64_t block = o.block[static_cast<std::size_t>(i)];
    if (block < 1) c.fail(fmt::format("block {} is {}", i, block));
    blocks *= block;
    const std::int64_t size = out[i + 1];
    out.set_dim(i + 1, Shape::kUnknown);
    if (!pads_known) continue;
    const std::int64_t before = o.pads[static_cast<std::size_t>(2 * i)];
    const std::int64_t after = o.pads[static_cast<std::size_t>(2 * i + 1)];
    if (before < 0 || after < 0) c.fail(fmt::format("axis {} has a negative padding", i + 1));
    if (size == Shape::kUnknown) continue;
    const std::int64_t padded = size + before + after, cropped = size * block - before - after;
    if (to_batch && padded % block != 0)
      c.fail(
          fmt::format("axis {} has {} elements with its padding, no multiple of {}", i + 1, padded, block));
    if (!to_batch && cropped < 0)
      c.fail(fmt::format("axis {} has {} elements, less than its crops", i + 1, size * block));
    out.set_dim(i + 1, to_batch ? padded / block : cropped);
  }
  if (out[0] != Shape::kUnknown) {
    if (!to_batch && out[0] % blocks != 0)
      c.fail(fmt::format("a batch of {} is no multiple of {} blocks", out[0], blocks));
    out.set_dim(0, to_batch ? out[0] * blocks : out[0] / blocks);
  }
  c.output(c.dtype(0), out);
}

/// One copy for each place inside a block: between every block-th element of the space and a part of the
/// batch.
BoxPlan copies(const PrepareContext& c, bool to_batch) {
  const Operands o(c.node.attrs, static_cast<int>(c.inputs.size()),
                   [&](int i) { return c.values[static_cast<std::size_t>(i)]; });
  const Shape& space = to_batch ? c.inputs[0].shape : c.outputs[0].shape;
  const Shape& batch = to_batch ? c.outputs[0].shape : c.inputs[0].shape;
  const auto space_strides = row_major_strides(space), batch_strides = row_major_strides(batch);
  std::int64_t places = 1;
  for (const std::int64_t block : o.block) places *= block;
  BoxPlan plan{{}, to_batch};
  for (std::int64_t place = 0; place < places; ++place) {
    std::vector<BoxAxis> axes{{space[0], space_strides[0], batch_strides[0]}};
    std::int64_t space_offset = 0, batch_offset = place * space[0] * batch_strides[0];
    std::int64_t rest = place;
    std::vector<std::int64_t> within(o.block.size());
    for (std::size_t i = o.block.size(); i-- > 0; rest /= o.block[i]) within[i] = rest % o.block[i];
    for (std::size_t i = 0; i < o.block.size(); ++i) {
      const int axis = static_cast<int>(i) + 1;
      const std::int64_t block = o.block[i], shift = within[i] - o.pads[2 * i];  // space = k block + shift
      const std::int64_t first = shift >= 0 ? 0 : (-shift + block - 1) / block;
      const std::int64_t last = space[axis] - 1 - shift;
      const std::int64_t count = last < 0 ? 0 : std::min(last / block + 1, batch[axis]) - first;
      axes.push_back({std::max<std::int64_t>(count, 0), block * space_strides[i + 1], batch_strides[i + 1]});
      space_offset += (first * block + shift) * space_strides[i + 1];
      batch_offset += first * batch_strides[i + 1];
    }
    for (int axis = static_cast<int>(o.block.size()) + 1; axis < space.rank(); ++axis)
      axes.push_back({space[axis], space_strides[static_cast<std::size_t>(axis)],
                      batch_strides[static_cast<std::size_t>(axis)]});
    if (!to_batch)
      for (BoxAxis& axis : axes) std::swap(axis.src_stride, axis.dst_stride);
    plan.parts.push_back({BoxCopy(axes, to_batch ? space_offset : batch_offset,
                                  to_batch ? batch_offset : space_offset, dtype_size(c.inputs[0].dtype)),
                          0, 0});
  }
  return plan;
}

}  // namespace

BoxPlan plans::space_to_batch(const PrepareContext& c) { return copies(c, true); }
BoxPlan plans::batch_to_space(const PrepareContext& c) { return copies(c, false); }

void register_space_to_batch(OpRegistry& registry) {
  for (const bool nd : {false, true})
    for (const bool to_batch : {false, true}) {
      const std::string suffix = nd ? "ND" : "";
      const std::string names[] = {"BatchToSpace" + suffix, "SpaceToBatch" + suffix};
      OpDef def;
      def.name = names[to_batch ? 1 : 0];
      def.traits = moves().any_type();
      def.min_inputs = def.max_inputs = nd ? 3 : 2;
      def.infer = [to_batch](InferContext& c) { infer(c, to_batch); };
      def.gradient = [undo = names[to_batch ? 0 : 1]](GradContext& c) {
        std::vector<ValueRef> inputs{c.grad()};
        for (int i = 1; i < static_cast<int>(c.node().inputs.size()); ++i) inputs.push_back(c.input(i));
        AttrMap attrs;
        if (const Attr* size = c.node().attrs.find("block_size")) attrs.set("block_size", *size);
        c.set_grad(0, c.op(undo, std::move(inputs), std::move(attrs)));
      };
      def.cpu = to_batch ? prepare_boxes<plans::space_to_batch> : prepare_boxes<plans::batch_to_space>;
      def.shape_values = nd ? std::vector<int>{1, 2} : std::vector<int>{1};
      registry.add(std::move(def));
    }
}

}  // namespace braid
