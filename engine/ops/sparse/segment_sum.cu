// CUDA kernels of UnsortedSegmentSum and SegmentSum (common/cuda/row_groups.h).
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_groups.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& out = c.outputs[0].shape;
  const std::int64_t segments = out[0], width = segments == 0 ? 0 : out.elements() / segments;
  const auto bytes = static_cast<std::uint64_t>(out.elements()) * dtype_size(c.outputs[0].dtype);
  const bool sorted = c.inputs.size() == 2;
  const cuda::RowUpdate update(c, {.dtype = c.outputs[0].dtype,
                                   .updates = c.inputs[1].shape.elements(),
                                   .rows = segments,
                                   .width = width,
                                   .sorted = sorted});
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [=, device = c.accelerator, index_type = c.inputs[1].dtype](const KernelArgs& a) {
    if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
    update.index(a, a.scratch, a.inputs[1], index_type, true);
    update.apply(a.scratch, a.stream, {.data = a.inputs[0], .row_stride = width, .column_stride = 1},
                 a.outputs[0]);
  };
  return kernel;
}

}  // namespace

void register_segment_sum_cuda(OpRegistry& registry) {
  for (const char* name : {"UnsortedSegmentSum", "SegmentSum"})
    registry.add_cuda(name, prepare, [](const Node&, std::span<const OutputInfo> inputs) {
      return cuda::is_row_type(inputs[0].dtype);
    });
}

}  // namespace braid
