// CUDA kernels of Cumsum and Cumprod: a thread a line where neighbouring lines are contiguous, else a warp.
// The axis is read on the device: it need not be known when the program is made.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

constexpr int kMaxRank = 8;

struct Dims {
  int rank = 0;
  std::int64_t size[kMaxRank];
};

template <bool kProduct, class W>
__device__ W combined(W a, W b) {
  return static_cast<W>(kProduct ? a * b : a + b);
}

/// Elements x[k * step], one after the other; eight are on their way together.
template <bool kProduct, class W>
__device__ void scan_alone(const W* x, W* y, std::int64_t step, std::int64_t size, bool exclusive) {
  constexpr int kAhead = 8;
  W sum = W(kProduct ? 1 : 0);
  for (std::int64_t first = 0; first < size; first += kAhead) {
    W next[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i < size) next[i] = x[(first + i) * step];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= size) break;
      const W inclusive = combined<kProduct>(sum, next[i]);
      y[(first + i) * step] = exclusive ? sum : inclusive;
      sum = inclusive;
    }
  }
}

/// The same by a warp, 32 elements at a time.
template <bool kProduct, class W>
__device__ void scan_by_warp(const W* x, W* y, std::int64_t step, std::int64_t size, bool exclusive) {
  constexpr unsigned kAll = 0xffffffffU;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  W carry = W(kProduct ? 1 : 0);
  for (std::int64_t first = 0; first < size; first += 32) {
    const std::int64_t k = first + lane;
    W sum = k < size ? x[k * step] : W(kProduct ? 1 : 0);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const W before = __shfl_up_sync(kAll, sum, distance);
      if (lane >= distance) sum = combined<kProduct>(before, sum);
    }
    const W inclusive = combined<kProduct>(carry, sum);
    W before = __shfl_up_sync(kAll, inclusive, 1);
    if (lane == 0) before = carry;
    if (k < size) y[k * step] = exclusive ? before : inclusive;
    carry = __shfl_sync(kAll, inclusive, 31);
  }
}

template <bool kProduct, class W, class I>
__global__ void scan_kernel(const W* x, const I* axis_input, W* y, Dims dims, bool exclusive, bool reverse,
                            StepStatus* status, int op) {
  const auto requested = static_cast<std::int64_t>(*axis_input);
  if (requested < -dims.rank || requested >= dims.rank) {
    if (cuda::grid_index() == 0) cuda::report(status, op, StatusCode::IndexOutOfRange, requested, dims.rank);
    return;
  }
  const int axis = static_cast<int>(requested < 0 ? requested + dims.rank : requested);
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= dims.size[d];
  for (int d = axis + 1; d < dims.rank; ++d) inner *= dims.size[d];
  const std::int64_t size = dims.size[axis], lines = outer * inner;
  const std::int64_t last = reverse ? (size - 1) * inner : 0, step = reverse ? -inner : inner;
  const bool by_warp = inner < 32;
  const std::int64_t width = by_warp ? 32 : 1;
  for (std::int64_t line = cuda::grid_index() / width; line < lines; line += cuda::grid_size() / width) {
    const std::int64_t slice = line / inner;
    const std::int64_t at = slice * size * inner + (line - slice * inner) + last;
    if (by_warp)
      scan_by_warp<kProduct>(x + at, y + at, step, size, exclusive);
    else
      scan_alone<kProduct>(x + at, y + at, step, size, exclusive);
  }
}

template <bool kProduct>
PreparedKernel prepare(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  Dims dims;
  dims.rank = shape.rank();
  for (int d = 0; d < dims.rank; ++d) dims.size[d] = shape[d];
  const std::int64_t n = shape.elements();
  const bool exclusive = c.attr("exclusive", false), reverse = c.attr("reverse", false);
  return with_number("Cumsum", c.inputs[0].dtype, [&]<class T>() {
    return with_index("Cumsum", c.inputs[1].dtype, [&]<class I>() {
      using W = wrapping_t<T>;
      PreparedKernel kernel;
      kernel.run = [=](const KernelArgs& a) {
        if (n != 0)
          cuda::launch(scan_kernel<kProduct, W, I>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream,
                       a.in<W>(0), a.in<I>(1), a.out<W>(0), dims, exclusive, reverse, a.status, a.op);
      };
      return kernel;
    });
  });
}

bool supports(const Node&, std::span<const OutputInfo> inputs) {
  return inputs[0].shape.has_rank() && inputs[0].shape.rank() <= kMaxRank;
}

}  // namespace

void register_cumulative_cuda(OpRegistry& registry) {
  registry.add_cuda("Cumsum", prepare<false>, supports);
  registry.add_cuda("Cumprod", prepare<true>, supports);
}

}  // namespace braid
