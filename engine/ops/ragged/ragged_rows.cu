// CUDA kernels of braid.RowsLike, braid.SameOffsets and braid.RaggedPositions. Of offsets that differ the
// larger is reported, as an index that is above the other.
#include "engine/ops/ragged/ragged_device.cuh"

namespace braid {
namespace {

using cuda::DeviceOffsets;

PreparedKernel prepare_rows_like(const PrepareContext& c) {
  const std::size_t row = row_bytes(c.outputs[0]);
  const std::int64_t rows = c.outputs[0].shape[0], kept = std::min(rows, c.inputs[0].shape[0]);
  PreparedKernel kernel;
  kernel.run = [copied = static_cast<std::uint64_t>(kept) * row, all = static_cast<std::uint64_t>(rows) * row,
                device = c.accelerator](const KernelArgs& a) {
    if (copied != 0)
      BRAID_CUDA_CHECK(cudaMemcpyAsync(a.outputs[0], a.inputs[0], copied, cudaMemcpyDeviceToDevice,
                                       cuda::native(a.stream)));
    if (all != copied) device->fill_zero(a.out<std::byte>(0) + copied, all - copied, a.stream);
  };
  return kernel;
}

__global__ void __launch_bounds__(cuda::kThreads)
    same_offsets_kernel(std::int64_t* out, DeviceOffsets a, DeviceOffsets b, StepStatus* status, int op) {
  for (std::int64_t r = cuda::grid_index(); r <= a.rows; r += cuda::grid_size()) {
    const std::int64_t of_a = a.begin(r), of_b = b.begin(r);
    if (of_a != of_b)
      cuda::report(status, op, StatusCode::IndexOutOfRange, of_a < of_b ? of_b : of_a,
                   of_a < of_b ? of_a : of_b);
    out[r] = of_a;
  }
}

PreparedKernel prepare_same_offsets(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [first = cuda::DeviceOffsetsInput(c, 0, 0), second = cuda::DeviceOffsetsInput(c, 1, 0),
                count = c.outputs[0].shape[0]](const KernelArgs& a) {
    cuda::launch(same_offsets_kernel, cuda::blocks_for(count), cuda::kThreads, 0, a.stream,
                 a.out<std::int64_t>(0), first.of(a), second.of(a), a.status, a.op);
  };
  return kernel;
}

struct PositionRules {
  std::int64_t prefix, most;
  bool from_end;
};

__global__ void __launch_bounds__(cuda::kThreads)
    positions_kernel(std::int64_t* out, DeviceOffsets offsets, PositionRules rules, StepStatus* status,
                     int op) {
  for (std::int64_t r = cuda::grid_index(); r < offsets.rows; r += cuda::grid_size())
    offsets.check(r, status, op);
  const std::int64_t used = offsets.rows == 0 ? 0 : offsets.used();
  for (std::int64_t k = cuda::grid_index(); k < offsets.values; k += cuda::grid_size()) {
    std::int64_t place = 0;
    if (k < used) {
      const std::int64_t row = cuda::row_of_value(offsets, k), i = k - offsets.begin(row);
      place = i < rules.prefix || !rules.from_end ? i : rules.prefix + offsets.length(row) - 1 - i;
      place = place < rules.most ? place : rules.most;
    }
    out[k] = place;
  }
}

PreparedKernel prepare_positions(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape[0], limit = c.attr("limit", std::int64_t{0});
  PreparedKernel kernel;
  kernel.run = [n, input = cuda::DeviceOffsetsInput(c, 0, n),
                rules = PositionRules{c.attr("prefix", std::int64_t{0}), limit > 0 ? limit - 1 : n,
                                      c.attr("from_end", false)}](const KernelArgs& a) {
    cuda::launch(positions_kernel, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.out<std::int64_t>(0),
                 input.of(a), rules, a.status, a.op);
  };
  return kernel;
}

}  // namespace

void register_ragged_rows_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.RowsLike", prepare_rows_like, cuda::moves_on_device);
  registry.add_cuda("braid.SameOffsets", prepare_same_offsets);
  registry.add_cuda("braid.RaggedPositions", prepare_positions);
}

}  // namespace braid
