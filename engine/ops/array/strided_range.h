// The index language of StridedSlice, as numpy's x[begin:end:stride, ..., newaxis]: begin, end and strides of
// one length, and bit masks by position in them (begin_mask and end_mask: take all on that side;
// ellipsis_mask: as many whole axes as are missing; new_axis_mask: an output axis of 1; shrink_axis_mask: one
// index, no output axis). Formula source: documentation of tf.strided_slice. Thread rule: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/shape.h"

namespace braid {

struct SliceMasks {
  std::int64_t begin = 0, end = 0, ellipsis = 0, new_axis = 0, shrink_axis = 0;
  explicit SliceMasks(const AttrMap& attrs);
};

/// What is taken of one input axis. `size` may be unknown.
struct AxisRange {
  std::int64_t begin = 0;
  std::int64_t stride = 1;
  std::int64_t size = Shape::kUnknown;
};

struct StridedRange {
  std::vector<AxisRange> axes;  // one an input axis
  Shape output;                 // with new axes, without shrunk ones
};

/// Values of begin, end and strides; those that are not known at compile time are missing.
struct SliceValues {
  std::optional<std::vector<std::int64_t>> begin, end, strides;
};

/// `count` is the length of begin, end and strides; `input` has a rank. `fail` is called with a message, and
/// throws, when the values do not fit the shape.
StridedRange resolve_strided_range(const Shape& input, std::int64_t count, const SliceValues& values,
                                   const SliceMasks& masks,
                                   const std::function<void(const std::string&)>& fail);

}  // namespace braid
