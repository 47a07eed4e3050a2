// CUDA kernel of braid.HotRows: rows are copied in units of up to 16 bytes, a thread a unit. In place the
// rows of other ids are not touched.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

/// hot [rows, width] and from [n, width] -> out [n, width]; widths in units.
template <class Unit, class I>
__global__ void hot_rows_kernel(const Unit* hot, const Unit* from, const I* ids, Unit* out, std::int64_t rows,
                                std::int64_t n, std::int64_t width, StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < n * width; i += cuda::grid_size()) {
    const std::int64_t k = i / width, column = i - k * width;
    const auto id = static_cast<std::int64_t>(ids[k]);
    if (id >= rows) {
      out[i] = Unit{};
      cuda::report(status, op, StatusCode::IndexOutOfRange, id, rows);
    } else if (id >= 0) {
      out[i] = hot[id * width + column];
    } else if (from != out) {
      out[i] = from[i];
    }
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& table = c.inputs[0].shape;
  const std::int64_t n = c.inputs[2].shape.elements(), hot = table[0],
                     width = hot == 0 ? 0 : table.elements() / hot;
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(dtype_size(c.inputs[1].dtype));
  return with_index("braid.HotRows", c.inputs[2].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (n == 0 || row_bytes == 0) return;
      const auto alignment =
          static_cast<std::uint64_t>(row_bytes) | reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
          reinterpret_cast<std::uintptr_t>(a.inputs[1]) | reinterpret_cast<std::uintptr_t>(a.outputs[0]);
      cuda::with_row_unit(alignment, [&]<class Unit>() {
        const std::int64_t units = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
        cuda::launch(hot_rows_kernel<Unit, I>, cuda::blocks_for(n * units), cuda::kThreads, 0, a.stream,
                     a.in<Unit>(0), a.in<Unit>(1), a.in<I>(2), a.out<Unit>(0), hot, n, units, a.status, a.op);
      });
    };
    return kernel;
  });
}

}  // namespace

void register_hot_rows_cuda(OpRegistry& registry) { registry.add_cuda("braid.HotRows", prepare); }

}  // namespace braid
