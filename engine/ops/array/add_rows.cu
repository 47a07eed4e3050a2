// CUDA kernel of braid.AddRows: a block takes the first of the rows that have one index, looks for the others
// behind it, and adds all of them to x's row, in float32 where x holds halves.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"

namespace braid {
namespace {

constexpr int kMostRows = 4096;  // places of equal indices that a block keeps; more rows stay a sum

/// X: what x holds; R: what the rows hold, and what is computed with.
template <class X, class R, class I>
__global__ void add_rows_kernel(X* x, const I* indices, const R* added, std::int64_t n, std::int64_t rows,
                                std::int64_t width, StepStatus* status, int op) {
  __shared__ std::uint16_t later[kMostRows];  // rows of the same index, in their order
  __shared__ int counts[cuda::kThreads / 32];
  const std::int64_t own = blockIdx.x;
  const I row = indices[own];
  if (row < 0 || row >= rows) {
    if (threadIdx.x == 0)
      cuda::report(status, op, StatusCode::IndexOutOfRange, static_cast<std::int64_t>(row), rows);
    return;
  }
  bool is_later = false;
  for (std::int64_t k = threadIdx.x; k < own; k += cuda::kThreads) is_later = is_later || indices[k] == row;
  if (__syncthreads_or(is_later) != 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int found = 0;
  for (std::int64_t base = own + 1; base < n; base += cuda::kThreads) {
    const std::int64_t k = base + threadIdx.x;
    const bool matches = k < n && indices[k] == row;
    const unsigned of_warp = __ballot_sync(0xffffffffU, matches);
    if (lane == 0) counts[warp] = __popc(of_warp);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < cuda::kThreads / 32; ++w) {
      before += w < warp ? counts[w] : 0;
      all += counts[w];
    }
    if (matches) later[found + before + __popc(of_warp & ((1U << lane) - 1))] = static_cast<std::uint16_t>(k);
    found += all;
    __syncthreads();
  }
  X* const to = x + static_cast<std::int64_t>(row) * width;
  for (std::int64_t i = threadIdx.x; i < width; i += cuda::kThreads) {
    R sum = added[own * width + i];
    for (int k = 0; k < found; ++k) sum += added[later[k] * width + i];
    to[i] = static_cast<X>(static_cast<R>(to[i]) + sum);
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.inputs[1].shape.elements(), rows = c.inputs[0].shape[0],
                     elements = c.inputs[0].shape.elements(), width = rows == 0 ? 0 : elements / rows;
  const auto bytes = static_cast<std::uint64_t>(elements) * dtype_size(c.inputs[0].dtype);
  const auto with_types = [&]<class X, class R>() {
    return with_index("braid.AddRows", c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
        if (bytes != 0 && a.outputs[0] != a.inputs[0])
          device->copy(a.outputs[0], a.inputs[0], bytes, a.stream);
        if (n != 0)
          cuda::launch(add_rows_kernel<X, R, I>, static_cast<unsigned>(n), cuda::kThreads, 0, a.stream,
                       a.out<X>(0), a.in<I>(1), a.in<R>(2), n, rows, width, a.status, a.op);
      };
      return kernel;
    });
  };
  if (c.inputs[0].dtype == DType::BFloat16) return with_types.template operator()<BFloat16, float>();
  if (c.inputs[0].dtype == DType::Float16) return with_types.template operator()<Float16, float>();
  return with_float("braid.AddRows", c.inputs[0].dtype,
                    [&]<class T>() { return with_types.template operator()<T, T>(); });
}

bool supports(const Node&, std::span<const OutputInfo> inputs) {
  const Shape& indices = inputs[1].shape;
  return indices.is_static() && indices.elements() <= kMostRows && dtype_size(inputs[0].dtype) != 0;
}

}  // namespace

void register_add_rows_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.AddRows", prepare, supports);
  cuda_takes_halves({"braid.AddRows"});
}

}  // namespace braid
