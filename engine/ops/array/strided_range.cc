#include "engine/ops/array/strided_range.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid {
namespace {

bool has_bit(std::int64_t mask, std::int64_t position) { return (mask >> position & 1) != 0; }

/// Elements from begin (included) to end (not), both already inside the axis.
std::int64_t range_size(std::int64_t begin, std::int64_t end, std::int64_t stride) {
  const std::int64_t interval = end - begin;
  if (interval == 0 || (interval < 0) != (stride < 0)) return 0;
  return interval / stride + (interval % stride != 0 ? 1 : 0);
}

struct Axis {
  std::int64_t index;  // among those that the slice names
  std::int64_t number, dim;
  const Shape& input;
};
using Fail = std::function<void(const std::string&)>;

/// An index, whose axis goes.
AxisRange index_of(const Axis& axis, const SliceValues& values, const Fail& fail) {
  AxisRange range{0, 1, 1};
  if (!values.begin || axis.dim == Shape::kUnknown) return range;
  const std::int64_t given = (*values.begin)[static_cast<std::size_t>(axis.index)];
  range.begin = given < 0 ? given + axis.dim : given;
  if (range.begin < 0 || range.begin >= axis.dim)
    fail(fmt::format("index {} is out of bounds for axis {} of shape {}", given, axis.number,
                     axis.input.to_string()));
  return range;
}

/// From begin to end, as far as they are known and inside.
AxisRange part_of(const Axis& axis, std::int64_t stride, const SliceValues& values, const SliceMasks& masks) {
  AxisRange range{.stride = stride};
  const bool all_begin = has_bit(masks.begin, axis.index), all_end = has_bit(masks.end, axis.index);
  if (axis.dim == Shape::kUnknown || !values.strides || !(values.begin || all_begin) ||
      !(values.end || all_end))
    return range;
  const std::int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? axis.dim : axis.dim - 1;
  const auto inside = [&](const std::vector<std::int64_t>& given) {
    const std::int64_t x = given[static_cast<std::size_t>(axis.index)];
    return std::clamp(x < 0 ? x + axis.dim : x, low, high);
  };
  range.begin = all_begin ? (stride > 0 ? low : high) : inside(*values.begin);
  const std::int64_t end = all_end ? (stride > 0 ? high : low) : inside(*values.end);
  range.size = range_size(range.begin, end, stride);
  return range;
}

}  // namespace

SliceMasks::SliceMasks(const AttrMap& attrs)
    : begin(attrs.get("begin_mask", std::int64_t{0})),
      end(attrs.get("end_mask", std::int64_t{0})),
      ellipsis(attrs.get("ellipsis_mask", std::int64_t{0})),
      new_axis(attrs.get("new_axis_mask", std::int64_t{0})),
      shrink_axis(attrs.get("shrink_axis_mask", std::int64_t{0})) {}

StridedRange resolve_strided_range(const Shape& input, std::int64_t count, const SliceValues& values,
                                   const SliceMasks& masks,
                                   const std::function<void(const std::string&)>& fail) {
  std::int64_t ellipses = 0, consumed = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (has_bit(masks.ellipsis, i))
      ++ellipses;
    else if (!has_bit(masks.new_axis, i))
      ++consumed;
  }
  if (ellipses > 1) fail("more than one ellipsis");
  if (consumed > input.rank()) fail(fmt::format("{} indices for shape {}", consumed, input.to_string()));

  StridedRange range;
  std::vector<std::int64_t> dims;
  const auto take_whole_axes = [&](std::int64_t axes) {
    for (; axes > 0; --axes) {
      const std::int64_t dim = input[static_cast<int>(range.axes.size())];
      range.axes.push_back({0, 1, dim});
      dims.push_back(dim);
    }
  };
  for (std::int64_t i = 0; i < count; ++i) {
    if (has_bit(masks.ellipsis, i)) {
      take_whole_axes(input.rank() - consumed);
      continue;
    }
    if (has_bit(masks.new_axis, i)) {
      dims.push_back(1);
      continue;
    }
    const auto number = static_cast<std::int64_t>(range.axes.size());
    const Axis axis{i, number, input[static_cast<int>(number)], input};
    const std::int64_t stride = values.strides ? (*values.strides)[static_cast<std::size_t>(i)] : 1;
    if (stride == 0) fail(fmt::format("stride {} is 0", i));
    if (has_bit(masks.shrink_axis, i)) {
      if (stride < 0) fail(fmt::format("index {} has a negative stride", i));
      range.axes.push_back(index_of(axis, values, fail));
      continue;
    }
    range.axes.push_back(part_of(axis, stride, values, masks));
    dims.push_back(range.axes.back().size);
  }
  if (ellipses == 0) take_whole_axes(input.rank() - consumed);
  range.output = Shape(std::move(dims));
  return range;
}

}  // namespace braid
