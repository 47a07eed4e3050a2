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
    const auto at = static_cast<std::size_t>(i);
    if (has_bit(masks.ellipsis, i)) {
      take_whole_axes(input.rank() - consumed);
      continue;
    }
    if (has_bit(masks.new_axis, i)) {
      dims.push_back(1);
      continue;
    }
    const std::int64_t dim = input[static_cast<int>(range.axes.size())];
    const std::int64_t stride = values.strides ? (*values.strides)[at] : 1;
    if (stride == 0) fail(fmt::format("stride {} is 0", i));
    const auto from_end = [dim](std::int64_t x) { return x < 0 ? x + dim : x; };
    AxisRange axis{.stride = stride};
    if (has_bit(masks.shrink_axis, i)) {
      if (stride < 0) fail(fmt::format("index {} has a negative stride", i));
      axis = {0, 1, 1};
      if (values.begin && dim != Shape::kUnknown) {
        axis.begin = from_end((*values.begin)[at]);
        if (axis.begin < 0 || axis.begin >= dim)
          fail(fmt::format("index {} is out of bounds for axis {} of shape {}", (*values.begin)[at],
                           range.axes.size(), input.to_string()));
      }
      range.axes.push_back(axis);
      continue;
    }
    const bool all_begin = has_bit(masks.begin, i), all_end = has_bit(masks.end, i);
    if (dim != Shape::kUnknown && values.strides && (values.begin || all_begin) && (values.end || all_end)) {
      const std::int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? dim : dim - 1;
      axis.begin =
          all_begin ? (stride > 0 ? low : high) : std::clamp(from_end((*values.begin)[at]), low, high);
      const std::int64_t end =
          all_end ? (stride > 0 ? high : low) : std::clamp(from_end((*values.end)[at]), low, high);
      axis.size = range_size(axis.begin, end, stride);
    }
    dims.push_back(axis.size);
    range.axes.push_back(axis);
  }
  if (ellipses == 0) take_whole_axes(input.rank() - consumed);
  range.output = Shape(std::move(dims));
  return range;
}

}  // namespace braid
