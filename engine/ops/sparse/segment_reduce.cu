// CUDA kernels of the segment ops beside the sums: what an empty segment has, then rows joined in the order
// of their positions (common/cuda/row_groups.h).
#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/segment_rules.h"

namespace braid {
namespace {

using cuda::RowReduce;
using cuda::RowWrite;

struct Row {
  const char* name;
  SegmentKind kind;
  RowReduce reduce;
  RowWrite write;
};

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  const bool sorted = c.inputs.size() == 2;
  const Shape& out = c.outputs[0].shape;
  const std::int64_t segments = out[0], width = segments == 0 ? 0 : out.elements() / segments;
  const cuda::RowUpdate update(c, {.dtype = c.outputs[0].dtype,
                                   .updates = c.inputs[1].shape.elements(),
                                   .rows = segments,
                                   .width = width,
                                   .reduce = row.reduce,
                                   .write = row.write,
                                   .sorted = sorted});
  return with_number(row.name, c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = update.scratch_bytes();
    kernel.run = [=, nothing = value_of_empty_segment<T>(row.kind, sorted),
                  index_type = c.inputs[1].dtype](const KernelArgs& a) {
      cuda::fill(a.stream, a.out<T>(0), segments * width, nothing);
      update.index(a, a.scratch, a.inputs[1], index_type, true);
      update.apply(a.scratch, a.stream, {.data = a.inputs[0], .row_stride = width, .column_stride = 1},
                   a.outputs[0]);
    };
    return kernel;
  });
}

constexpr Row kRows[] = {
    {"UnsortedSegmentMean", SegmentKind::Mean, RowReduce::Sum, RowWrite::Mean},
    {"UnsortedSegmentMax", SegmentKind::Max, RowReduce::Max, RowWrite::Set},
    {"UnsortedSegmentMin", SegmentKind::Min, RowReduce::Min, RowWrite::Set},
    {"UnsortedSegmentProd", SegmentKind::Prod, RowReduce::Prod, RowWrite::Set},
    {"SegmentMean", SegmentKind::Mean, RowReduce::Sum, RowWrite::Mean},
    {"SegmentMax", SegmentKind::Max, RowReduce::Max, RowWrite::Set},
    {"SegmentMin", SegmentKind::Min, RowReduce::Min, RowWrite::Set},
    {"SegmentProd", SegmentKind::Prod, RowReduce::Prod, RowWrite::Set},
};

}  // namespace

void register_segment_reduce_cuda(OpRegistry& registry) {
  for (const Row& row : kRows)
    registry.add_cuda(
        row.name, [&row](const PrepareContext& c) { return prepare(c, row); },
        [](const Node&, std::span<const OutputInfo> inputs) { return cuda::is_row_type(inputs[0].dtype); });
}

}  // namespace braid
