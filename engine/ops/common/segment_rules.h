// Shape rules of the segment ops. An unsorted one takes (data, segment_ids, num_segments), where the ids have
// a prefix of data's shape and negative ones are left out; a sorted one (data, segment_ids), with ids that
// never fall and as many segments as the last id says, so that the ids' values decide the shape.
#pragma once

#include <limits>

#include "engine/ir/op.h"

namespace braid {

void infer_unsorted_segments(InferContext& c);
void infer_sorted_segments(InferContext& c);

/// `data` without its first `dropped` axes, in `segments` rows.
Shape segments_shape(const Shape& data, int dropped, std::int64_t segments);
/// The number of segments that known sorted ids make. Fails for ids that fall or are negative.
std::int64_t sorted_segment_count(const InferContext& c, const Tensor& ids);
/// The value of a scalar input that says how many segments or rows there are; unknown when it is not known
/// yet. Fails for a negative one.
std::int64_t count_input(const InferContext& c, int input, const char* what);

enum class SegmentKind { Mean, Max, Min, Prod };

/// What a segment without rows has: the operation's neutral element, but 0 for a sorted Mean, Max or Min.
template <class T>
T value_of_empty_segment(SegmentKind kind, bool sorted) {
  if (kind == SegmentKind::Prod) return T(1);
  if (kind == SegmentKind::Mean || sorted) return T(0);
  return kind == SegmentKind::Max ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
}

}  // namespace braid
