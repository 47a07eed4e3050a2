// CUDA kernel of braid.SlicesToDense: zeros, then rows added in the order of the indices.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_groups.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& out = c.outputs[0].shape;
  const std::int64_t rows = out[0], width = rows == 0 ? 0 : out.elements() / rows;
  const auto bytes = static_cast<std::uint64_t>(out.elements()) * dtype_size(c.outputs[0].dtype);
  const cuda::RowUpdate update(
      c, {.dtype = c.outputs[0].dtype, .updates = c.inputs[0].shape[0], .rows = rows, .width = width});
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [=, device = c.accelerator, index_type = c.inputs[0].dtype,
                padded = c.attr("skip_negative", false)](const KernelArgs& a) {
    if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
    update.index(a, a.scratch, a.inputs[0], index_type, padded);
    update.apply(a.scratch, a.stream, {.data = a.inputs[1], .row_stride = width, .column_stride = 1},
                 a.outputs[0]);
  };
  return kernel;
}

}  // namespace

void register_slices_to_dense_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.SlicesToDense", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::is_row_type(inputs[1].dtype);
  });
}

}  // namespace braid
