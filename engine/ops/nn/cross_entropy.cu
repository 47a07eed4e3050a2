// CUDA kernels of the softmax cross entropies, dense and sparse: loss and backprop in one launch, a warp or a
// block a row. A label that is no class is reported; its row becomes zero.
#include "engine/ops/common/cuda/softmax_rows.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

using cuda::RowGroup;

// x, labels, backprop: [rows, n]; loss: [rows].
template <bool kBlock, class T>
__global__ void __launch_bounds__(1024)
    dense_kernel(const T* x, const T* labels, T* loss, T* backprop, std::int64_t rows, std::int64_t n) {
  using G = RowGroup<kBlock>;
  for (std::int64_t r = G::first(); r < rows; r += G::step()) {
    const T *xr = x + r * n, *z = labels + r * n;
    T max, sum;
    cuda::max_and_sum<kBlock>(xr, n, max, sum);
    const T scale = T(1) / sum, log_sum = vec::log(sum);
    T total = 0;
#pragma unroll 4
    for (std::int64_t j = G::lane(); j < n; j += G::size()) {
      const T shifted = xr[j] - max, label = z[j];
      total += label == T(0) ? T(0) : label * (log_sum - shifted);  // 0 * inf is no loss
      backprop[r * n + j] = vec::exp(shifted) * scale - label;
    }
    total = G::template reduce<reduce::Sum>(total);
    if (G::lane() == 0) loss[r] = total;
  }
}

// x, backprop: [rows, n]; labels, loss: [rows].
template <bool kBlock, class T, class I>
__global__ void __launch_bounds__(1024)
    sparse_kernel(const T* x, const I* labels, T* loss, T* backprop, std::int64_t rows, std::int64_t n,
                  StepStatus* status, int op) {
  using G = RowGroup<kBlock>;
  for (std::int64_t r = G::first(); r < rows; r += G::step()) {
    const T* xr = x + r * n;
    const auto label = static_cast<std::int64_t>(labels[r]);
    const bool is_class = label >= 0 && label < n;
    T max, sum;
    cuda::max_and_sum<kBlock>(xr, n, max, sum);
    const T scale = is_class ? T(1) / sum : T(0);
#pragma unroll 4
    for (std::int64_t j = G::lane(); j < n; j += G::size())
      backprop[r * n + j] = vec::exp(xr[j] - max) * scale - (j == label ? T(1) : T(0));
    if (G::lane() != 0) continue;
    loss[r] = is_class ? vec::log(sum) - (xr[label] - max) : T(0);
    if (!is_class) cuda::report(status, op, StatusCode::IndexOutOfRange, label, n);
  }
}

PreparedKernel prepare_dense(const PrepareContext& c) {
  const std::int64_t rows = c.inputs[0].shape[0], n = c.inputs[0].shape[1];
  if (n == 0 && rows > 0) c.fail("there are no classes");
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [rows, n](const KernelArgs& a) {
      cuda::launch_rows_of(n, rows, dense_kernel<false, T>, dense_kernel<true, T>, a.stream, a.in<T>(0),
                           a.in<T>(1), a.out<T>(0), a.out<T>(1), rows, n);
    };
    return kernel;
  });
}

PreparedKernel prepare_sparse(const PrepareContext& c) {
  const std::int64_t rows = c.inputs[0].shape[0], n = c.inputs[0].shape[1];
  if (n == 0 && rows > 0) c.fail("there are no classes");
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(c.node.op->name, c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.run = [rows, n](const KernelArgs& a) {
        cuda::launch_rows_of(n, rows, sparse_kernel<false, T, I>, sparse_kernel<true, T, I>, a.stream,
                             a.in<T>(0), a.in<I>(1), a.out<T>(0), a.out<T>(1), rows, n, a.status, a.op);
      };
      return kernel;
    });
  });
}

}  // namespace

void register_cross_entropy_cuda(OpRegistry& registry) {
  registry.add_cuda("SoftmaxCrossEntropyWithLogits", prepare_dense);
  registry.add_cuda("SparseSoftmaxCrossEntropyWithLogits", prepare_sparse);
}

}  // namespace braid
