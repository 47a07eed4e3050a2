// CUDA kernels of braid.RaggedToDense and braid.DenseToRagged.
#include "engine/ops/ragged/ragged_device.cuh"

namespace braid {
namespace {

using cuda::DeviceOffsets;
using cuda::RowSource;

/// Place j of row b of [B, length], counted through, among the values.
struct DensePlaces {
  DeviceOffsets offsets;
  std::int64_t length;

  __device__ std::int64_t rows() const { return offsets.rows; }
  __device__ void each_row(std::int64_t row, StepStatus* status, int op) const {
    offsets.check(row, status, op);
  }
  __device__ RowSource operator()(std::int64_t k) const {
    const std::int64_t row = k / length, j = k - row * length;
    return j < offsets.length(row) ? RowSource{0, offsets.begin(row) + j} : cuda::kNoSource;
  }
};

/// The other way round.
struct RaggedPlaces {
  DeviceOffsets offsets;
  std::int64_t length;

  __device__ std::int64_t rows() const { return offsets.rows; }
  __device__ void each_row(std::int64_t row, StepStatus* status, int op) const {
    offsets.check(row, status, op);
  }
  __device__ RowSource operator()(std::int64_t k) const {
    if (offsets.rows == 0 || k >= offsets.used()) return cuda::kNoSource;
    const std::int64_t row = cuda::row_of_value(offsets, k), j = k - offsets.begin(row);
    return j < length ? RowSource{0, row * length + j} : cuda::kNoSource;
  }
};

PreparedKernel prepare_to_dense(const PrepareContext& c) {
  const std::int64_t values = c.inputs[0].shape[0];
  PreparedKernel kernel;
  kernel.run = [values, row = row_bytes(c.inputs[0]), length = c.outputs[0].shape[1],
                all = c.outputs[0].shape[0] * c.outputs[0].shape[1],
                input = cuda::DeviceOffsetsInput(c, 1, values)](const KernelArgs& a) {
    cuda::move_rows(a, a.outputs[0], all, row, {{a.inputs[0], nullptr}, {values, 0}},
                    DensePlaces{input.of(a), length});
  };
  return kernel;
}

PreparedKernel prepare_to_ragged(const PrepareContext& c) {
  const std::int64_t values = c.outputs[0].shape[0], length = c.inputs[0].shape[1];
  PreparedKernel kernel;
  kernel.run = [values, length, row = row_bytes(c.outputs[0]), all = c.inputs[0].shape[0] * length,
                input = cuda::DeviceOffsetsInput(c, 1, values)](const KernelArgs& a) {
    cuda::move_rows(a, a.outputs[0], values, row, {{a.inputs[0], nullptr}, {all, 0}},
                    RaggedPlaces{input.of(a), length});
  };
  return kernel;
}

}  // namespace

void register_ragged_dense_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.RaggedToDense", prepare_to_dense, cuda::moves_on_device);
  registry.add_cuda("braid.DenseToRagged", prepare_to_ragged, cuda::moves_on_device);
}

}  // namespace braid
