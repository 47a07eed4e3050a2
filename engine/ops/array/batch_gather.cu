// CUDA kernels of braid.BatchGather: rows in units of up to 16 bytes, a thread a unit; an index out of range
// is reported and its row is zeros. The gradient adds rows up in the order of the indices: where a batch has
// few, a thread looks through them for each of its elements; else common/cuda/row_groups.h sorts them.
#include "engine/ops/array/batch_gather_sizes.h"
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

/// From a row of the output, [batch, outer, n], to the row of params that it is, [batch, outer, rows].
struct RowOf {
  std::int64_t outer, rows, n;
  std::int64_t count;  // rows of the output
  cuda::Divider by_n, by_outer;

  explicit RowOf(const BatchGatherSizes& s)
      : outer(s.outer), rows(s.rows), n(s.n), count(s.batch * s.outer * s.n) {
    if (count < cuda::kDividerLimit && count != 0) {
      by_n = cuda::Divider(n);
      by_outer = cuda::Divider(outer);
    }
  }

  /// -1, after a report, when the index is out of range.
  template <class I>
  __device__ std::int64_t operator()(std::int64_t r, const I* indices, StepStatus* status, int op) const {
    const bool narrow = count < cuda::kDividerLimit;
    const std::int64_t block = narrow ? by_n.quotient(static_cast<std::uint32_t>(r)) : r / n;
    const std::int64_t batch = narrow ? by_outer.quotient(static_cast<std::uint32_t>(block)) : block / outer;
    const auto index = static_cast<std::int64_t>(indices[batch * n + (r - block * n)]);
    if (index >= 0 && index < rows) return block * rows + index;
    cuda::report(status, op, StatusCode::IndexOutOfRange, index, rows);
    return -1;
  }
};

/// `width` in units.
template <class Unit, class I>
__global__ void gather_kernel(const Unit* params, const I* indices, Unit* out, RowOf row_of,
                              std::int64_t width, cuda::Divider by_width, StepStatus* status, int op) {
  const std::int64_t units = row_of.count * width;
  for (std::int64_t i = cuda::grid_index(); i < units; i += cuda::grid_size()) {
    const std::int64_t r =
        units < cuda::kDividerLimit ? by_width.quotient(static_cast<std::uint32_t>(i)) : i / width;
    const std::int64_t from = row_of(r, indices, status, op);
    out[i] = from < 0 ? Unit{} : params[from * width + (i - r * width)];
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const BatchGatherSizes s(c, c.inputs[0].shape, c.inputs[1].shape);
  const RowOf row_of(s);
  const auto row_bytes = s.width * static_cast<std::int64_t>(dtype_size(c.inputs[0].dtype));
  return with_index("braid.BatchGather", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (row_of.count * row_bytes == 0) return;
      const auto alignment = static_cast<std::uint64_t>(row_bytes) |
                             reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
                             reinterpret_cast<std::uintptr_t>(a.outputs[0]);
      cuda::with_row_unit(alignment, [&]<class Unit>() {
        const std::int64_t width = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
        cuda::launch(gather_kernel<Unit, I>, cuda::blocks_for(row_of.count * width), cuda::kThreads, 0,
                     a.stream, a.in<Unit>(0), a.in<I>(1), a.out<Unit>(0), row_of, width,
                     cuda::Divider(width < cuda::kDividerLimit ? width : 1), a.status, a.op);
      });
    };
    return kernel;
  });
}

template <class I>
__global__ void entries_kernel(const I* indices, std::uint64_t* entries, RowOf row_of, std::int64_t no_row,
                               StepStatus* status, int op) {
  for (std::int64_t r = cuda::grid_index(); r < row_of.count; r += cuda::grid_size()) {
    const std::int64_t row = row_of(r, indices, status, op);
    entries[r] = static_cast<std::uint64_t>(row < 0 ? no_row : row) << 32 | static_cast<std::uint64_t>(r);
  }
}

constexpr std::int64_t kFewIndices = 1024;
constexpr double kMostLooks = 1 << 28;  // at indices, of all elements

/// A block has one or more of the matrices [rows, width].
template <class I>
__global__ void few_indices_kernel(const float* dy, const I* indices, float* out, BatchGatherSizes s,
                                   StepStatus* status, int op) {
  extern __shared__ __align__(16) int row_of_index[];
  const int n = static_cast<int>(s.n), width = static_cast<int>(s.width);
  const int elements = static_cast<int>(s.rows) * width;
  for (std::int64_t block = blockIdx.x; block < s.batch * s.outer; block += gridDim.x) {
    const I* const own = indices + block / s.outer * s.n;
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < n; k += static_cast<int>(blockDim.x)) {
      const auto index = static_cast<std::int64_t>(own[k]);
      const bool fits = index >= 0 && index < s.rows;
      if (!fits) cuda::report(status, op, StatusCode::IndexOutOfRange, index, s.rows);
      row_of_index[k] = fits ? static_cast<int>(index) : -1;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < elements; i += static_cast<int>(blockDim.x)) {
      const int row = i / width;
      const float* const from = dy + block * s.n * s.width + (i - row * width);
      float sum = 0;
      for (int k = 0; k < n; ++k)
        if (row_of_index[k] == row) sum += from[static_cast<std::int64_t>(k) * width];
      out[block * elements + i] = sum;
    }
  }
}

bool has_few_indices(const BatchGatherSizes& s, DType dtype) {
  const double elements = static_cast<double>(s.rows) * static_cast<double>(s.width);
  const double matrices = static_cast<double>(s.batch) * static_cast<double>(s.outer);
  return dtype == DType::Float32 && s.n <= kFewIndices && elements <= kMostLooks &&
         matrices * elements * static_cast<double>(s.n) <= kMostLooks;
}

PreparedKernel few_indices(const PrepareContext& c, const BatchGatherSizes& s) {
  return with_index("braid.BatchGatherGrad", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [s](const KernelArgs& a) {
      const std::int64_t matrices = s.batch * s.outer;
      if (matrices * s.rows * s.width == 0) return;
      // The loop over the rows is unrolled to reads of 16 bytes, the last of them too.
      const std::size_t bytes = (static_cast<std::size_t>(s.n) * sizeof(int) + 15) / 16 * 16;
      cuda::launch(few_indices_kernel<I>, cuda::blocks_for(matrices, 1), cuda::kThreads, bytes, a.stream,
                   a.in<float>(0), a.in<I>(1), a.out<float>(0), s, a.status, a.op);
    };
    return kernel;
  });
}

/// dy [batch, outer, n, width] into zeros [batch, outer, rows, width].
PreparedKernel prepare_grad(const PrepareContext& c) {
  const Shape& out = c.outputs[0].shape;
  const BatchGatherSizes s(c, out, c.inputs[1].shape);
  if (has_few_indices(s, c.outputs[0].dtype)) return few_indices(c, s);
  const RowOf row_of(s);
  const std::int64_t rows = s.batch * s.outer * s.rows;
  const auto bytes = static_cast<std::uint64_t>(out.elements()) * dtype_size(c.outputs[0].dtype);
  const cuda::RowUpdate update(
      c, {.dtype = c.outputs[0].dtype, .updates = row_of.count, .rows = rows, .width = s.width});
  return with_index("braid.BatchGatherGrad", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = update.scratch_bytes();
    kernel.run = [=, width = s.width, device = c.accelerator](const KernelArgs& a) {
      if (bytes == 0) return;
      device->fill_zero(a.outputs[0], bytes, a.stream);
      if (row_of.count == 0) return;
      cuda::launch(entries_kernel<I>, cuda::blocks_for(row_of.count), cuda::kThreads, 0, a.stream, a.in<I>(1),
                   update.entries(a.scratch), row_of, rows, a.status, a.op);
      update.apply(a.scratch, a.stream, {.data = a.inputs[0], .row_stride = width, .column_stride = 1},
                   a.outputs[0]);
    };
    return kernel;
  });
}

}  // namespace

void register_batch_gather_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.BatchGather", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[0].dtype) != 0;
  });
  registry.add_cuda(
      "braid.BatchGatherGrad", prepare_grad,
      [](const Node&, std::span<const OutputInfo> inputs) { return cuda::is_row_type(inputs[0].dtype); });
}

}  // namespace braid
