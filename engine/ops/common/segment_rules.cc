#include "engine/ops/common/segment_rules.h"

#include <fmt/format.h>

#include "engine/ops/common/shape_rules.h"

namespace braid {

Shape segments_shape(const Shape& data, int dropped, std::int64_t segments) {
  std::vector<std::int64_t> dims{segments};
  dims.insert(dims.end(), data.dims().begin() + dropped, data.dims().end());
  return Shape(std::move(dims));
}

std::int64_t count_input(const InferContext& c, int input, const char* what) {
  require_index_dtype(c, input);
  c.require_rank(input, 0);
  if (!c.value(input)) return Shape::kUnknown;
  const std::int64_t count = tensor_to_int64s(*c.value(input))[0];
  if (count < 0) c.fail(fmt::format("{} is {}", what, count));
  return count;
}

void infer_unsorted_segments(InferContext& c) {
  require_number(c, 0);
  require_index_dtype(c, 1);
  const std::int64_t segments = count_input(c, 2, "num_segments");
  const Shape& data = c.shape(0);
  const Shape& ids = c.shape(1);
  if (!data.has_rank() || !ids.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  bool fits = ids.rank() <= data.rank();
  for (int i = 0; fits && i < ids.rank(); ++i)
    fits = ids[i] == data[i] || ids[i] == Shape::kUnknown || data[i] == Shape::kUnknown;
  if (!fits)
    c.fail(
        fmt::format("segment_ids of shape {} are no prefix of shape {}", ids.to_string(), data.to_string()));
  c.output(c.dtype(0), segments_shape(data, ids.rank(), segments));
}

std::int64_t sorted_segment_count(const InferContext& c, const Tensor& ids_value) {
  const std::vector<std::int64_t> ids = tensor_to_int64s(ids_value);
  for (std::size_t k = 0; k < ids.size(); ++k)
    if (ids[k] < (k == 0 ? 0 : ids[k - 1]))
      c.fail(fmt::format("segment_ids must not fall or be negative, [{}] is {}", k, ids[k]));
  return ids.empty() ? 0 : ids.back() + 1;
}

void infer_sorted_segments(InferContext& c) {
  require_number(c, 0);
  require_index_dtype(c, 1);
  c.require_rank(1, 1);
  require_min_rank(c, 0, 1);
  const Shape& data = c.shape(0);
  std::int64_t segments = Shape::kUnknown;
  if (c.value(1)) {
    segments = sorted_segment_count(c, *c.value(1));
    const std::int64_t ids = c.value(1)->elements();
    if (data.has_rank() && data[0] != Shape::kUnknown && data[0] != ids)
      c.fail(fmt::format("{} segment_ids for shape {}", ids, data.to_string()));
  }
  c.output(c.dtype(0), data.has_rank() ? segments_shape(data, 1, segments) : Shape::unknown_rank());
}

}  // namespace braid
