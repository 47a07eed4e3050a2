// CUDA kernels of braid.BatchGather: rows in units of up to 16 bytes, a thread a unit; an index out of range
// is reported and its row is zeros. The gradient adds rows up in the order of the indices: where a batch has
// few, some lanes look through them for each row; else common/cuda/row_groups.h sorts them.
#include <algorithm>
#include <climits>

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
constexpr double kMostLooks = 1 << 28;  // of lanes at indices

/// V floats of a row that are read and written at once.
template <int V>
struct alignas(V * sizeof(float)) Floats {
  float of[V];
};

/// How few_indices_kernel spreads over warps.
struct FewIndices {
  std::int64_t outer, blocks;  // matrices that share indices; matrices
  int rows, n, units;          // of a matrix; units of V floats of a row
  int lanes;                   // of a row: a power of two, up to 32
  int parts;                   // of a matrix, a block each
};

/// Adds up the rows of `from` whose bits are set, the lowest first; four are under way at a time.
template <int V>
__device__ void add_rows(unsigned mask, const Floats<V>* from, std::int64_t units, Floats<V>& sum) {
  while (mask != 0) {
    int at[4];
    Floats<V> row[4];
#pragma unroll
    for (int& k : at) {
      k = __ffs(static_cast<int>(mask)) - 1;
      mask &= mask - 1;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (at[j] >= 0) row[j] = from[at[j] * units];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (at[j] < 0) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) sum.of[v] += row[j].of[v];
    }
  }
}

/// A block has a part of the rows of one or more matrices [rows, width]; `lanes` threads have a row, look at
/// as many indices at once, and read those rows of dy that belong to theirs.
template <int V, class I>
__global__ void few_indices_kernel(const Floats<V>* dy, const I* indices, Floats<V>* out, FewIndices s,
                                   StepStatus* status, int op) {
  extern __shared__ int row_of_index[];
  const int lane = static_cast<int>(threadIdx.x) & 31, own = lane & (s.lanes - 1);
  const unsigned all = s.lanes == 32 ? ~0u : (1u << s.lanes) - 1;
  const int step = static_cast<int>(blockDim.x) / s.lanes * s.parts;
  for (std::int64_t i = blockIdx.x; i < s.blocks * s.parts; i += gridDim.x) {
    const std::int64_t block = i / s.parts;
    const I* const given = indices + block / s.outer * s.n;
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < s.n; k += static_cast<int>(blockDim.x)) {
      const auto index = static_cast<std::int64_t>(given[k]);
      const bool fits = index >= 0 && index < s.rows;
      if (!fits) cuda::report(status, op, StatusCode::IndexOutOfRange, index, s.rows);
      row_of_index[k] = fits ? static_cast<int>(index) : -1;
    }
    __syncthreads();
    const Floats<V>* const from = dy + block * s.n * s.units;
    Floats<V>* const to = out + block * s.rows * s.units;
    const auto part = static_cast<int>(i - block * s.parts);
    const int first =
        part * (static_cast<int>(blockDim.x) / s.lanes) + static_cast<int>(threadIdx.x) / 32 * (32 / s.lanes);
    for (int begin = first; begin < s.rows; begin += step) {  // the same for all lanes of a warp
      const int row = begin + lane / s.lanes;
      for (int u = own; u - own < s.units; u += s.lanes) {
        Floats<V> sum{};
        for (int k = 0; k < s.n; k += s.lanes) {
          const bool mine = k + own < s.n && row_of_index[k + own] == row;
          const unsigned mask = __ballot_sync(~0u, mine) >> (lane - own) & all;
          if (row < s.rows && u < s.units)
            add_rows<V>(mask, from + static_cast<std::int64_t>(k) * s.units + u, s.units, sum);
          __syncwarp();
        }
        if (row < s.rows && u < s.units) to[static_cast<std::int64_t>(row) * s.units + u] = sum;
      }
    }
  }
}

bool has_few_indices(const BatchGatherSizes& s, DType dtype) {
  const double looks = static_cast<double>(s.batch) * static_cast<double>(s.outer) *
                       static_cast<double>(s.rows) * static_cast<double>(s.n) *
                       static_cast<double>(std::max<std::int64_t>(s.width / 32, 1));
  return dtype == DType::Float32 && s.n <= kFewIndices && s.rows <= INT_MAX / 64 &&
         s.rows * s.width <= INT_MAX && looks <= kMostLooks;
}

template <int V, class I>
void run_few_indices(const BatchGatherSizes& s, const KernelArgs& a) {
  FewIndices few{.outer = s.outer,
                 .blocks = s.batch * s.outer,
                 .rows = static_cast<int>(s.rows),
                 .n = static_cast<int>(s.n),
                 .units = static_cast<int>(s.width / V),
                 .lanes = 1,
                 .parts = 1};
  while (few.lanes < std::min(few.units, 32)) few.lanes *= 2;
  constexpr std::int64_t kEnoughBlocks = 132 * 8;
  const std::int64_t most = (s.rows * few.lanes + cuda::kThreads - 1) / cuda::kThreads;
  few.parts = static_cast<int>(std::clamp<std::int64_t>(kEnoughBlocks / few.blocks, 1, most));
  cuda::launch(few_indices_kernel<V, I>, cuda::blocks_for(few.blocks * few.parts, 1), cuda::kThreads,
               static_cast<std::size_t>(s.n) * sizeof(int), a.stream, a.in<Floats<V>>(0), a.in<I>(1),
               a.out<Floats<V>>(0), few, a.status, a.op);
}

PreparedKernel few_indices(const PrepareContext& c, const BatchGatherSizes& s) {
  return with_index("braid.BatchGatherGrad", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [s](const KernelArgs& a) {
      if (s.batch * s.outer * s.rows * s.width == 0) return;
      const auto alignment = static_cast<std::uint64_t>(s.width) * sizeof(float) |
                             reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
                             reinterpret_cast<std::uintptr_t>(a.outputs[0]);
      if (alignment % 16 == 0) return run_few_indices<4, I>(s, a);
      run_few_indices<1, I>(s, a);
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
