#include "engine/rewrite/image_ranges.h"

#include <algorithm>
#include <utility>

#include "engine/ops/array/strided_range.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// What a StridedSlice, or its gradient, takes of `whole`, where it keeps all axes and goes forward.
std::optional<std::vector<AxisRange>> ranges_of(const ImageValues& values, const Node& node,
                                                const Shape& whole) {
  const SliceValues known{values.known(node.inputs[1]), values.known(node.inputs[2]),
                          values.known(node.inputs[3])};
  if (!known.begin || !known.end || !known.strides) return std::nullopt;
  const SliceMasks masks(node.attrs);
  if (masks.new_axis != 0 || masks.shrink_axis != 0) return std::nullopt;
  bool fits = true;
  const StridedRange range = resolve_strided_range(whole, std::ssize(*known.begin), known, masks,
                                                   [&](const std::string&) { fits = false; });
  if (!fits || range.output.rank() != whole.rank()) return std::nullopt;
  for (const AxisRange& axis : range.axes)
    if (axis.stride < 1 || axis.size < 1) return std::nullopt;
  return range.axes;
}

bool is_dense(const std::vector<AxisRange>& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [](const AxisRange& axis) { return axis.stride == 1; });
}

}  // namespace

bool ImageRanges::sink(const Node& node) {
  static const Pattern padded{"Pad", "PadV2", "braid.PadGrad"}, slice{"StridedSlice"},
      gradient{"StridedSliceGrad"};
  if (padded.names(node)) return sink_padding(node);
  if (slice.names(node)) return sink_slice(node);
  return gradient.names(node) && sink_slice_gradient(node);
}

/// By axes of T's result, put to those of what lies behind.
ValueRef ImageRanges::paddings(const Node& like, const std::vector<std::int64_t>& before,
                               const std::vector<std::int64_t>& after) {
  const auto rank = static_cast<int>(before.size());
  Tensor turned(DType::Int32, Shape{rank, 2});
  for (int axis = 0; axis < rank; ++axis) {
    const auto to = static_cast<std::size_t>(2 * axis_behind(axis, rank)),
               from = static_cast<std::size_t>(axis);
    turned.data<std::int32_t>()[to] = static_cast<std::int32_t>(before[from]);
    turned.data<std::int32_t>()[to + 1] = static_cast<std::int32_t>(after[from]);
  }
  return values_.constant(like, std::move(turned));
}

/// Pad(x, paddings, ...), and PadGrad(dy, paddings, like).
bool ImageRanges::sink_padding(const Node& node) {
  static const Pattern cut{"braid.PadGrad"};
  const auto source = values_.behind(node.inputs[0]);
  const auto known = values_.known(node.inputs[1]);
  if (!source || !known) return false;
  std::vector<std::int64_t> before, after;
  for (std::size_t axis = 0; 2 * axis < known->size(); ++axis) {
    before.push_back((*known)[2 * axis]);
    after.push_back((*known)[2 * axis + 1]);
  }
  Node made = node;
  made.inputs[0] = *source;
  made.inputs[1] = paddings(node, before, after);
  if (cut.names(node)) {
    const auto like = values_.behind(node.inputs[2]);
    if (!like) return false;
    made.inputs[2] = *like;
  }
  return values_.put(node,
                     values_.to_front(node, {values_.add(std::move(made), node.name + "/channels_last"), 0}));
}

bool ImageRanges::sink_slice(const Node& node) {
  const auto source = values_.behind(node.inputs[0]);
  if (!source) return false;
  const auto ranges = ranges_of(values_, node, values_.shape(node.inputs[0]));
  if (!ranges) return false;
  const auto rank = static_cast<int>(ranges->size());
  std::vector<std::int64_t> begins(ranges->size()), sizes(ranges->size()), ends(ranges->size()),
      strides(ranges->size());
  for (int axis = 0; axis < rank; ++axis) {
    const AxisRange& range = (*ranges)[static_cast<std::size_t>(axis)];
    const auto to = static_cast<std::size_t>(axis_behind(axis, rank));
    begins[to] = range.begin;
    sizes[to] = range.size;
    ends[to] = range.begin + (range.size - 1) * range.stride + 1;
    strides[to] = range.stride;
  }
  const ValueRef begin = values_.ints(node, begins);
  const ValueRef made =
      is_dense(*ranges)
          ? values_.add(node, "Slice", {*source, begin, values_.ints(node, sizes)}, {})
          : values_.add(node, "StridedSlice",
                        {*source, begin, values_.ints(node, ends), values_.ints(node, strides)}, {});
  return values_.put(node, values_.to_front(node, made));
}

/// StridedSliceGrad(sizes, begin, end, strides, dy): dy between zeros.
bool ImageRanges::sink_slice_gradient(const Node& node) {
  const auto source = values_.behind(node.inputs[4]);
  const Shape whole = node.outputs[0].shape;
  if (!source || whole.rank() != values_.shape(*source).rank()) return false;
  const auto ranges = ranges_of(values_, node, whole);
  if (!ranges || !is_dense(*ranges)) return false;
  std::vector<std::int64_t> before, after;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const AxisRange& range = (*ranges)[static_cast<std::size_t>(axis)];
    before.push_back(range.begin);
    after.push_back(whole[axis] - range.begin - range.size);
  }
  const ValueRef made = values_.add(node, "Pad", {*source, paddings(node, before, after)}, {});
  return values_.put(node, values_.to_front(node, made));
}

}  // namespace braid
