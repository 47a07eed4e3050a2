// UnsortedSegmentSum(data, segment_ids, num_segments): y[i] = sum of data[k] with segment_ids[k] == i, where
// the ids have a prefix of data's shape and negative ones are left out. SegmentSum(data, segment_ids): the
// same with ids that never fall, and as many segments as the last id says. Sums are in the order of k; an
// empty segment is 0. Gradient: each row gets its segment's.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/segment_rules.h"

namespace braid {
namespace {

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
                .traits = computes().type_attrs({{"T", 0}, {"Tindices", 1}, {"Tnumsegments", 2}}),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_unsorted_segments,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("braid.GatherOrZero", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare,
                .shape_values = {2}});
  registry.add({.name = "SegmentSum",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_sorted_segments,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("Gather", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare,
                .shape_values = {1}});
}

}  // namespace braid
