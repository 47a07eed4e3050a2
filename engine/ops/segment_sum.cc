// UnsortedSegmentSum(data, segment_ids, num_segments): y[i] = sum of data[k] with segment_ids[k] == i, where
// the ids have a prefix of data's shape and negative ones are left out. SegmentSum(data, segment_ids): the
// same with ids that never fall, and as many segments as the last id says. Sums are in the order of k; an
// empty segment is 0. Gradient: each row gets its segment's.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

Shape segments_shape(const Shape& data, int dropped, std::int64_t segments) {
  std::vector<std::int64_t> dims{segments};
  dims.insert(dims.end(), data.dims().begin() + dropped, data.dims().end());
  return Shape(std::move(dims));
}

void infer_unsorted(InferContext& c) {
  require_number(c, 0);
  require_index_dtype(c, 1);
  require_index_dtype(c, 2);
  c.require_rank(2, 0);
  const Shape& data = c.shape(0);
  const Shape& ids = c.shape(1);
  if (!data.has_rank() || !ids.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  if (ids.rank() > data.rank())
    c.fail(
        fmt::format("segment_ids of shape {} are no prefix of shape {}", ids.to_string(), data.to_string()));
  for (int i = 0; i < ids.rank(); ++i)
    if (ids[i] != data[i] && ids[i] != Shape::kUnknown && data[i] != Shape::kUnknown)
      c.fail(fmt::format("segment_ids of shape {} are no prefix of shape {}", ids.to_string(),
                         data.to_string()));
  std::int64_t segments = Shape::kUnknown;
  if (c.value(2)) {
    segments = tensor_to_int64s(*c.value(2))[0];
    if (segments < 0) c.fail(fmt::format("num_segments is {}", segments));
  }
  c.output(c.dtype(0), segments_shape(data, ids.rank(), segments));
}

void infer_sorted(InferContext& c) {
  require_number(c, 0);
  require_index_dtype(c, 1);
  c.require_rank(1, 1);
  require_min_rank(c, 0, 1);
  const Shape& data = c.shape(0);
  std::int64_t segments = Shape::kUnknown;
  if (c.value(1)) {
    const std::vector<std::int64_t> ids = tensor_to_int64s(*c.value(1));
    for (std::size_t k = 0; k < ids.size(); ++k)
      if (ids[k] < (k == 0 ? 0 : ids[k - 1]))
        c.fail(fmt::format("segment_ids must not fall or be negative, [{}] is {}", k, ids[k]));
    segments = ids.empty() ? 0 : ids.back() + 1;
    if (data.has_rank() && data[0] != Shape::kUnknown && data[0] != static_cast<std::int64_t>(ids.size()))
      c.fail(fmt::format("{} segment_ids for shape {}", ids.size(), data.to_string()));
  }
  c.output(c.dtype(0), data.has_rank() ? segments_shape(data, 1, segments) : Shape::unknown_rank());
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.inputs[1].shape.elements();
  const std::int64_t segments = c.outputs[0].shape[0];
  const std::int64_t width = n == 0 ? 0 : c.inputs[0].shape.elements() / n;
  const std::int64_t out_width = segments == 0 ? 0 : c.outputs[0].shape.elements() / segments;
  return with_number("UnsortedSegmentSum", c.inputs[0].dtype, [&]<class T>() {
    return with_index("UnsortedSegmentSum", c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        check_segment_ids(place, a.in<I>(1), n, segments);
        const IndexGroups groups(a.in<I>(1), n, segments, a.scratch);
        sum_rows(*pool, groups, a.in<T>(0), n == 0 ? out_width : width, segments, a.out<T>(0));
      };
      return kernel;
    });
  });
}

}  // namespace

void register_segment_sum(OpRegistry& registry) {
  registry.add({.name = "UnsortedSegmentSum",
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_unsorted,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("braid.GatherOrZero", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare,
                .shape_values = {2}});
  registry.add({.name = "SegmentSum",
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_sorted,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("Gather", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare,
                .shape_values = {1}});
}

}  // namespace braid
