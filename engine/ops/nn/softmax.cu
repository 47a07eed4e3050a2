// CUDA kernels of Softmax, LogSoftmax and their gradients: a warp or a block a row.
#include "engine/ops/common/cuda/softmax_rows.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

using cuda::RowGroup;

// x, y, dy, dx: [rows, n].

template <bool kLog, bool kBlock, class T>
__global__ void __launch_bounds__(1024) softmax_kernel(const T* x, T* y, std::int64_t rows, std::int64_t n) {
  using G = RowGroup<kBlock>;
  for (std::int64_t r = G::first(); r < rows; r += G::step()) {
    const T* xr = x + r * n;
    T* yr = y + r * n;
    T max, sum;
    cuda::max_and_sum<kBlock>(xr, n, max, sum);
    const T factor = kLog ? vec::log(sum) : T(1) / sum;
#pragma unroll 4
    for (std::int64_t j = G::lane(); j < n; j += G::size())
      yr[j] = kLog ? (xr[j] - max) - factor : vec::exp(xr[j] - max) * factor;
  }
}

template <bool kLog, bool kBlock, class T>
__global__ void __launch_bounds__(1024)
    softmax_grad_kernel(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t n) {
  using G = RowGroup<kBlock>;
  for (std::int64_t r = G::first(); r < rows; r += G::step()) {
    const T *yr = y + r * n, *dyr = dy + r * n;
    T sum = 0;
#pragma unroll 4
    for (std::int64_t j = G::lane(); j < n; j += G::size()) sum += kLog ? dyr[j] : dyr[j] * yr[j];
    sum = G::template reduce<reduce::Sum>(sum);
#pragma unroll 4
    for (std::int64_t j = G::lane(); j < n; j += G::size())
      dx[r * n + j] = kLog ? dyr[j] - vec::exp(yr[j]) * sum : (dyr[j] - sum) * yr[j];
  }
}

template <bool kLog, bool kGrad>
PreparedKernel prepare(const PrepareContext& c) {
  const Shape& shape = c.outputs[0].shape;
  const std::int64_t n = shape[shape.rank() - 1];
  const std::int64_t rows = n == 0 ? 0 : shape.elements() / n;
  return with_float(c.node.op->name, c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [rows, n](const KernelArgs& a) {
      if constexpr (kGrad)
        cuda::launch_rows_of(n, rows, softmax_grad_kernel<kLog, false, T>, softmax_grad_kernel<kLog, true, T>,
                             a.stream, a.in<T>(0), a.in<T>(1), a.out<T>(0), rows, n);
      else
        cuda::launch_rows_of(n, rows, softmax_kernel<kLog, false, T>, softmax_kernel<kLog, true, T>, a.stream,
                             a.in<T>(0), a.out<T>(0), rows, n);
    };
    return kernel;
  });
}

}  // namespace

void register_softmax_cuda(OpRegistry& registry) {
  registry.add_cuda("Softmax", prepare<false, false>);
  registry.add_cuda("LogSoftmax", prepare<true, false>);
  registry.add_cuda("braid.SoftmaxGrad", prepare<false, true>);
  registry.add_cuda("braid.LogSoftmaxGrad", prepare<true, true>);
}

}  // namespace braid
