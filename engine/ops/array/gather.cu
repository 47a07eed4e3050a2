// CUDA kernels of the gathers. Rows are copied in units of up to 16 bytes, a thread a unit, so that a warp
// reads and writes whole rows; an index out of range is reported and its row is zeros. braid.GatherGrad adds
// rows up in the order of the indices (common/cuda/row_groups.h).
#include <bit>

#include "engine/ops/array/gather_slices.h"
#include "engine/ops/array/known_gather_grad.h"
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/cuda/widened.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/fused/gather_many.h"

namespace braid {
namespace {

/// params [outer, rows, width], indices [n], out [outer, n, width]; widths in units.
struct GatherShape {
  std::int64_t outer, rows, width, n;
  cuda::Divider by_width, by_n;
  bool zero_for_negative;
};

struct GatherPlace {
  std::int64_t outer, k, column;
};

/// Of unit i of the output.
__device__ GatherPlace place_of(const GatherShape& s, std::int64_t i, bool narrow) {
  if (narrow) {
    const std::uint32_t slice = s.by_width.quotient(static_cast<std::uint32_t>(i));
    const std::uint32_t outer = s.by_n.quotient(slice);
    return {outer, slice - outer * s.by_n.divisor(), i - std::int64_t{slice} * s.width};
  }
  const std::int64_t slice = i / s.width, outer = slice / s.n;
  return {outer, slice - outer * s.n, i - slice * s.width};
}

template <class Unit, class I>
__global__ void gather_kernel(const Unit* params, const I* indices, Unit* out,
                              const __grid_constant__ GatherShape s, StepStatus* status, int op) {
  constexpr int kTogether = 4;  // loads before the first store
  const std::int64_t units = s.outer * s.n * s.width, step = cuda::grid_size();
  const bool narrow = units < cuda::kDividerLimit;
  for (std::int64_t first = cuda::grid_index(); first < units; first += kTogether * step) {
    Unit unit[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const std::int64_t i = first + u * step;
      if (i >= units) break;
      const GatherPlace at = place_of(s, i, narrow);
      const auto index = static_cast<std::int64_t>(indices[at.k]);
      if (index >= 0 && index < s.rows) {
        unit[u] = params[(at.outer * s.rows + index) * s.width + at.column];
      } else {
        unit[u] = Unit{};
        if (index >= 0 || !s.zero_for_negative)
          cuda::report(status, op, StatusCode::IndexOutOfRange, index, s.rows);
      }
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u)
      if (first + u * step < units) out[first + u * step] = unit[u];
  }
}

template <class Unit, class I>
void launch_gather(const KernelArgs& a, GatherShape s) {
  const std::int64_t units = s.outer * s.n * s.width;
  if (units == 0) return;
  if (units < cuda::kDividerLimit) {
    s.by_width = cuda::Divider(s.width);
    s.by_n = cuda::Divider(s.n);
  }
  cuda::launch(gather_kernel<Unit, I>, cuda::blocks_for(units), cuda::kThreads, 0, a.stream, a.in<Unit>(0),
               a.in<I>(1), a.out<Unit>(0), s, a.status, a.op);
}

PreparedKernel prepare(const PrepareContext& c) {
  if (c.inputs[0].dtype != c.outputs[0].dtype) return cuda::prepare_gathers(c);  // rounded to halves
  const GatherSlices slices(c.inputs[0].shape, prepared_gather_axis(c, 2, c.inputs[0].shape.rank()));
  const std::int64_t n = c.inputs[1].shape.elements();
  const auto row_bytes = slices.width * static_cast<std::int64_t>(dtype_size(c.inputs[0].dtype));
  const bool zero_for_negative = gives_zeros(*c.node.op);
  return with_index("Gather", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      const auto alignment = static_cast<std::uint64_t>(row_bytes) |
                             reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
                             reinterpret_cast<std::uintptr_t>(a.outputs[0]);
      cuda::with_row_unit(alignment, [&]<class Unit>() {
        launch_gather<Unit, I>(
            a, {slices.outer, slices.rows, row_bytes / static_cast<std::int64_t>(sizeof(Unit)), n,
                cuda::Divider(), cuda::Divider(), zero_for_negative});
      });
    };
    return kernel;
  });
}

/// The entry of update (o, k) is row indices[k] of slice o.
template <class I>
__global__ void slice_entries_kernel(const I* indices, std::uint64_t* entries, std::int64_t outer,
                                     std::int64_t rows, std::int64_t n, StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < outer * n; i += cuda::grid_size()) {
    const std::int64_t o = i / n;
    const auto index = static_cast<std::int64_t>(indices[i - o * n]);
    std::int64_t row = o * rows + index;
    if (index < 0 || index >= rows) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, index, rows);
      row = outer * rows;
    }
    entries[i] = static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint64_t>(i);
  }
}

/// dy [outer, n, width] into zeros [outer, rows, width].
PreparedKernel prepare_grad(const PrepareContext& c) {
  const Shape& out = c.outputs[0].shape;
  const GatherSlices s(out, prepared_gather_axis(c, 3, out.rank()));
  if (c.values[1]) {
    if (PreparedKernel kernel = cuda::known_gather_grad(c, s, *c.values[1]); kernel.run) return kernel;
  }
  if (is_half(c.outputs[0].dtype)) return cuda::prepare_widened(c, prepare_grad);
  const std::int64_t n = c.inputs[1].shape.elements();
  const auto bytes = static_cast<std::uint64_t>(out.elements()) * dtype_size(c.outputs[0].dtype);
  const cuda::RowUpdate update(
      c, {.dtype = c.outputs[0].dtype, .updates = s.outer * n, .rows = s.outer * s.rows, .width = s.width});
  return with_index("braid.GatherGrad", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = update.scratch_bytes();
    kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
      if (bytes == 0) return;
      device->fill_zero(a.outputs[0], bytes, a.stream);
      if (n == 0) return;
      cuda::launch(slice_entries_kernel<I>, cuda::blocks_for(s.outer * n), cuda::kThreads, 0, a.stream,
                   a.in<I>(1), update.entries(a.scratch), s.outer, s.rows, n, a.status, a.op);
      update.apply(a.scratch, a.stream, {.data = a.inputs[0], .row_stride = s.width, .column_stride = 1},
                   a.outputs[0]);
    };
    return kernel;
  });
}

bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  if (inputs[0].dtype == DType::Resource)
    return dtype_size(node.attrs.get<DType>("dtype", DType::Invalid)) != 0;
  return dtype_size(inputs[0].dtype) != 0;
}

bool supports_grad(const Node&, std::span<const OutputInfo> inputs) {
  return is_half(inputs[0].dtype) || cuda::is_row_type(inputs[0].dtype);
}

}  // namespace

void register_gather_cuda(OpRegistry& registry) {
  for (const char* name :
       {"Gather", "GatherV2", "ResourceGather", "braid.GatherOrZero", "braid.ResourceGatherOrZero"})
    registry.add_cuda(name, prepare, supports);
  cuda_takes_halves({"ResourceGather", "braid.GatherGrad"});
  registry.add_cuda("braid.GatherGrad", prepare_grad, supports_grad);
}

}  // namespace braid
