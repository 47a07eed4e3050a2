// CUDA kernels of braid.RaggedConcat and braid.RaggedSplit: the row of the batch that a value belongs to is
// found by bisection of offsets. Offsets that are bad are reported, as is what there is no room for.
#include "engine/ops/ragged/ragged_device.cuh"
#include "engine/ops/ragged/ragged_parts.h"

namespace braid {
namespace {

using cuda::DeviceOffsets;
using cuda::RowSource;

/// The rows of a and b.
struct Parts {
  Parts(const PrepareContext& c, const RaggedParts& parts, std::int64_t m, std::int64_t n)
      : values{m, n}, width{parts.width[0], parts.width[1]} {
    for (const int p : {0, 1})
      if (parts.offsets[p] >= 0) {
        input[p] = static_cast<int>(inputs.size());
        inputs.emplace_back(c, parts.offsets[p], values[p]);
      }
  }
  DeviceOffsets of(const KernelArgs& a, int p) const {
    if (input[p] >= 0) return inputs[static_cast<std::size_t>(input[p])].of(a);
    return {nullptr, values[p] / width[p], values[p], width[p], true};
  }

  std::int64_t values[2], width[2];
  int input[2] = {-1, -1};
  std::vector<cuda::DeviceOffsetsInput> inputs;
};

/// Values of a's and b's rows, one behind the other.
struct BothRows {
  DeviceOffsets a, b;
  std::int64_t* offsets;  // of both, to write
  bool repeat_last;

  __device__ std::int64_t rows() const { return a.rows; }
  __device__ std::int64_t begin(std::int64_t row) const { return a.begin(row) + b.begin(row); }
  __device__ void each_row(std::int64_t row, StepStatus* status, int op) const {
    a.check(row, status, op);
    b.check(row, status, op);
    offsets[row] = begin(row);
  }
  __device__ RowSource operator()(std::int64_t k) const {
    const std::int64_t used = begin(a.rows);
    if (k >= used && repeat_last) k = used - 1;
    if (a.rows == 0 || k < 0 || k >= used) return cuda::kNoSource;
    const std::int64_t row = cuda::row_of_value(a.rows, k, [&](std::int64_t r) { return begin(r); });
    const std::int64_t i = k - begin(row), of_a = a.length(row);
    if (i < of_a) return {0, a.begin(row) + i};
    return {1, b.begin(row) + i - of_a};
  }
};

/// Values of a's rows, or of b's, among both.
struct PartRows {
  DeviceOffsets a, b;
  std::int64_t room;  // for both
  bool is_b;

  __device__ std::int64_t rows() const { return a.rows; }
  __device__ void each_row(std::int64_t row, StepStatus* status, int op) const {
    a.check(row, status, op);
    b.check(row, status, op);
    const std::int64_t used = a.begin(a.rows) + b.begin(a.rows);
    if (row == 0 && used > room) cuda::report(status, op, StatusCode::IndexOutOfRange, used, room);
  }
  __device__ RowSource operator()(std::int64_t k) const {
    const DeviceOffsets& part = is_b ? b : a;
    if (k >= part.used() || part.rows == 0) return cuda::kNoSource;
    const std::int64_t row = cuda::row_of_value(part, k);
    return {0, k + (is_b ? a.begin(row + 1) : b.begin(row))};
  }
};

PreparedKernel prepare_concat(const PrepareContext& c) {
  const Parts parts(c, ragged_parts(c.node.attrs, 2), c.inputs[0].shape[0], c.inputs[1].shape[0]);
  PreparedKernel kernel;
  kernel.run = [parts, row = row_bytes(c.outputs[0]), all = c.outputs[0].shape[0],
                repeat = c.attr("repeat_last", false)](const KernelArgs& a) {
    const BothRows rows{parts.of(a, 0), parts.of(a, 1), a.out<std::int64_t>(1), repeat};
    cuda::move_rows(a, a.outputs[0], all, row,
                    {{a.inputs[0], a.inputs[1]}, {parts.values[0], parts.values[1]}}, rows);
  };
  return kernel;
}

PreparedKernel prepare_split(const PrepareContext& c) {
  const Parts parts(c, ragged_parts(c.node.attrs, 3), c.outputs[0].shape[0], c.outputs[1].shape[0]);
  PreparedKernel kernel;
  kernel.run = [parts, row = row_bytes(c.inputs[0]), all = c.inputs[0].shape[0]](const KernelArgs& a) {
    for (const int p : {0, 1})
      cuda::move_rows(a, a.outputs[p], parts.values[p], row, {{a.inputs[0], nullptr}, {all, 0}},
                      PartRows{parts.of(a, 0), parts.of(a, 1), all, p == 1});
  };
  return kernel;
}

}  // namespace

void register_ragged_concat_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.RaggedConcat", prepare_concat, cuda::moves_on_device);
  registry.add_cuda("braid.RaggedSplit", prepare_split, cuda::moves_on_device);
}

}  // namespace braid
