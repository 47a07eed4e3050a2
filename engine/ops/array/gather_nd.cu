// CUDA kernels of GatherNd (a thread a unit of up to 16 bytes) and ScatterNd (common/cuda/row_groups.h).
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/nd_rows.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/cuda/unit.cuh"

namespace braid {
namespace {

/// `width` in units.
template <class Unit, class I>
__global__ void gather_nd_kernel(const Unit* params, const I* indices, Unit* out, cuda::NdRows from,
                                 std::int64_t width, cuda::Divider by_width, StepStatus* status, int op) {
  const std::int64_t units = from.count * width;
  for (std::int64_t i = cuda::grid_index(); i < units; i += cuda::grid_size()) {
    const std::int64_t k =
        units < cuda::kDividerLimit ? by_width.quotient(static_cast<std::uint32_t>(i)) : i / width;
    const std::int64_t row = from.row(indices, k, status, op);
    out[i] = row < from.rows ? params[row * width + (i - k * width)] : Unit{};
  }
}

PreparedKernel prepare_gather(const PrepareContext& c) {
  const cuda::NdRows from(NdAddressing(c.inputs[0].shape, c.inputs[1].shape));
  const auto row_bytes = from.width * static_cast<std::int64_t>(dtype_size(c.inputs[0].dtype));
  return with_index("GatherNd", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (row_bytes * from.count == 0) return;
      const auto alignment = static_cast<std::uint64_t>(row_bytes) |
                             reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
                             reinterpret_cast<std::uintptr_t>(a.outputs[0]);
      cuda::with_row_unit(alignment, [&]<class Unit>() {
        const std::int64_t width = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
        cuda::launch(gather_nd_kernel<Unit, I>, cuda::blocks_for(from.count * width), cuda::kThreads, 0,
                     a.stream, a.in<Unit>(0), a.in<I>(1), a.out<Unit>(0), from, width,
                     cuda::Divider(width < cuda::kDividerLimit ? width : 1), a.status, a.op);
      });
    };
    return kernel;
  });
}

PreparedKernel prepare_scatter(const PrepareContext& c) {
  const cuda::NdRows to(NdAddressing(c.outputs[0].shape, c.inputs[0].shape));
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  const cuda::RowUpdate update(
      c, {.dtype = c.outputs[0].dtype, .updates = to.count, .rows = to.rows, .width = to.width});
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [=, device = c.accelerator, index_type = c.inputs[0].dtype](const KernelArgs& a) {
    if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
    cuda::make_nd_entries(a, to, a.inputs[0], index_type, update.entries(a.scratch));
    update.apply(a.scratch, a.stream, {.data = a.inputs[1], .row_stride = to.width, .column_stride = 1},
                 a.outputs[0]);
  };
  return kernel;
}

}  // namespace

void register_gather_nd_cuda(OpRegistry& registry) {
  registry.add_cuda("GatherNd", prepare_gather, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[0].dtype) != 0 && cuda::NdRows::supports(inputs[0].shape);
  });
  registry.add_cuda("ScatterNd", prepare_scatter, [](const Node& node, std::span<const OutputInfo> inputs) {
    return cuda::is_row_type(inputs[1].dtype) && cuda::NdRows::supports(node.outputs[0].shape);
  });
}

}  // namespace braid
