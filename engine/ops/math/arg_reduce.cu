// CUDA kernels of ArgMax and ArgMin: a thread for each output where there are many and neighbours are read
// together, else a warp or a block. Of equal elements the first wins, whoever finds it.
#include "engine/ops/common/cuda/softmax_rows.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scalar_formulas.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using cuda::RowGroup;

/// An element and where it is; at < 0: none yet.
template <class T>
struct Found {
  T value;
  std::int64_t at;
};

/// The better of two, the first of equal ones.
template <bool kMax, class T>
__device__ Found<T> better(const Found<T>& u, const Found<T>& v) {
  if (v.at < 0) return u;
  if (u.at < 0) return v;
  if (formula::beats<kMax>(v.value, u.value)) return v;
  if (formula::beats<kMax>(u.value, v.value)) return u;
  return v.at < u.at ? v : u;
}

template <bool kMax, class T>
__device__ Found<T> warp_best(Found<T> best) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Found<T> other{
        __shfl_xor_sync(0xffffffffU, best.value, distance),
        static_cast<std::int64_t>(__shfl_xor_sync(0xffffffffU, static_cast<long long>(best.at), distance))};
    best = better<kMax>(best, other);
  }
  return best;
}

// x: [outer, size, inner]; y: [outer, inner].

template <bool kMax, class T, class I>
__global__ void each_kernel(const T* x, I* y, std::int64_t outputs, std::int64_t size, std::int64_t inner) {
  for (std::int64_t o = cuda::grid_index(); o < outputs; o += cuda::grid_size()) {
    const std::int64_t outer = o / inner;
    const T* from = x + outer * size * inner + (o - outer * inner);
    T best = from[0];
    std::int64_t at = 0;
#pragma unroll 4
    for (std::int64_t k = 1; k < size; ++k) {
      const T element = from[k * inner];
      if (formula::beats<kMax>(element, best)) {
        best = element;
        at = k;
      }
    }
    y[o] = static_cast<I>(at);
  }
}

template <bool kMax, class T, class I, bool kBlock>
__global__ void __launch_bounds__(1024)
    group_kernel(const T* x, I* y, std::int64_t outputs, std::int64_t size, std::int64_t inner) {
  using G = RowGroup<kBlock>;
  __shared__ Found<T> parts[32];
  for (std::int64_t o = G::first(); o < outputs; o += G::step()) {
    const std::int64_t outer = o / inner;
    const T* from = x + outer * size * inner + (o - outer * inner);
    Found<T> best{T(0), -1};
#pragma unroll 4
    for (std::int64_t k = G::lane(); k < size; k += G::size()) {
      const T element = from[k * inner];
      if (best.at < 0 || formula::beats<kMax>(element, best.value)) best = {element, k};
    }
    best = warp_best<kMax>(best);
    if constexpr (kBlock) {
      const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
      if (lane == 0) parts[warp] = best;
      __syncthreads();
      best = lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : Found<T>{T(0), -1};
      best = warp_best<kMax>(best);
      __syncthreads();  // the parts are overwritten by the next output's
    }
    if (G::lane() == 0) y[o] = static_cast<I>(best.at);
  }
}

template <bool kMax, class T, class I>
PreparedKernel arg_kernel(const PrepareContext& c, int axis) {
  constexpr std::int64_t kManyOutputs = 8192;
  const Shape& shape = c.inputs[0].shape;
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
  const std::int64_t size = shape[axis], outputs = outer * inner;
  if (size == 0 && outputs > 0) c.fail("the reduced axis has no elements");
  const bool each = size <= 8 || (inner >= 8 && outputs >= kManyOutputs);
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& a) {
    if (outputs == 0) return;
    if (each)
      cuda::launch(each_kernel<kMax, T, I>, cuda::blocks_for(outputs), cuda::kThreads, 0, a.stream,
                   a.in<T>(0), a.out<I>(0), outputs, size, inner);
    else
      cuda::launch_rows_of(size, outputs, group_kernel<kMax, T, I, false>, group_kernel<kMax, T, I, true>,
                           a.stream, a.in<T>(0), a.out<I>(0), outputs, size, inner);
  };
  return kernel;
}

template <bool kMax>
PreparedKernel prepare(const PrepareContext& c) {
  const std::vector<int> axes = known_axes(c, 1, c.inputs[0].shape.rank());
  return with_number(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(c.node.op->name, c.outputs[0].dtype,
                      [&]<class I>() { return arg_kernel<kMax, T, I>(c, axes[0]); });
  });
}

}  // namespace

void register_arg_reduce_cuda(OpRegistry& registry) {
  registry.add_cuda("ArgMax", prepare<true>);
  registry.add_cuda("ArgMin", prepare<false>);
}

}  // namespace braid
