// CUDA kernels of TopK, TopKV2 and braid.TopKGrad. A warp or a block a row finds the best element after the
// one found last, k times: the order is total, so nothing needs to be marked. That is k passes over a row,
// which is meant for small k.
#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/softmax_rows.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scalar_formulas.h"

namespace braid {
namespace {

using cuda::RowGroup;

/// An element and its index; at < 0: none.
template <class T>
struct Found {
  T value;
  std::int64_t at;
};

template <class T>
__device__ bool comes_before(const Found<T>& u, const Found<T>& v) {
  return formula::before(u.value, u.at, v.value, v.at);
}

template <class T>
__device__ Found<T> warp_first(Found<T> best) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Found<T> other{
        __shfl_xor_sync(0xffffffffU, best.value, distance),
        static_cast<std::int64_t>(__shfl_xor_sync(0xffffffffU, static_cast<long long>(best.at), distance))};
    if (other.at >= 0 && (best.at < 0 || comes_before(other, best))) best = other;
  }
  return best;
}

// x: [rows, n]; values, indices: [rows, k].
template <class T, class I, bool kBlock>
__global__ void __launch_bounds__(1024)
    top_kernel(const T* x, T* values, I* indices, std::int64_t rows, std::int64_t n, std::int64_t k) {
  using G = RowGroup<kBlock>;
  __shared__ Found<T> parts[32];
  for (std::int64_t r = G::first(); r < rows; r += G::step()) {
    const T* row = x + r * n;
    Found<T> last{T(0), -1};
    for (std::int64_t i = 0; i < k; ++i) {
      Found<T> best{T(0), -1};
#pragma unroll 4
      for (std::int64_t j = G::lane(); j < n; j += G::size()) {
        const Found<T> candidate{row[j], j};
        if ((last.at < 0 || comes_before(last, candidate)) && (best.at < 0 || comes_before(candidate, best)))
          best = candidate;
      }
      best = warp_first(best);
      if constexpr (kBlock) {
        const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
        if (lane == 0) parts[warp] = best;
        __syncthreads();
        best = lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : Found<T>{T(0), -1};
        best = warp_first(best);
        __syncthreads();  // the parts are overwritten by the next pass
      }
      if (G::lane() == 0) {
        values[r * k + i] = best.value;
        indices[r * k + i] = static_cast<I>(best.at);
      }
      last = best;
    }
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &in = c.inputs[0].shape, &out = c.outputs[0].shape;
  const std::int64_t n = in[in.rank() - 1], k = out[out.rank() - 1];
  std::int64_t rows = 1;
  for (int d = 0; d < in.rank() - 1; ++d) rows *= in[d];
  return with_number("TopKV2", c.inputs[0].dtype, [&]<class T>() {
    return with_index("TopKV2", c.outputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.run = [rows, n, k](const KernelArgs& a) {
        if (k != 0)
          cuda::launch_rows_of(n, rows, top_kernel<T, I, false>, top_kernel<T, I, true>, a.stream, a.in<T>(0),
                               a.out<T>(0), a.out<I>(1), rows, n, k);
      };
      return kernel;
    });
  });
}

/// dx[row, indices[row, i]] = dy[row, i] for `count` elements in rows of k. Indices of a row are distinct.
template <class T, class I>
__global__ void put_kernel(const T* dy, const I* indices, T* dx, std::int64_t count, std::int64_t k,
                           std::int64_t n, StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < count; i += cuda::grid_size()) {
    const auto index = static_cast<std::int64_t>(indices[i]);
    if (index < 0 || index >= n)
      cuda::report(status, op, StatusCode::IndexOutOfRange, index, n);
    else
      dx[i / k * n + index] = dy[i];
  }
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const Shape &dy = c.inputs[0].shape, &out = c.outputs[0].shape;
  const std::int64_t n = out[out.rank() - 1], k = dy[dy.rank() - 1], count = dy.elements();
  const auto bytes = static_cast<std::uint64_t>(out.elements()) * dtype_size(c.outputs[0].dtype);
  return with_number("braid.TopKGrad", c.inputs[0].dtype, [&]<class T>() {
    return with_index("braid.TopKGrad", c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
        if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
        if (count != 0)
          cuda::launch(put_kernel<T, I>, cuda::blocks_for(count), cuda::kThreads, 0, a.stream, a.in<T>(0),
                       a.in<I>(1), a.out<T>(0), count, k, n, a.status, a.op);
      };
      return kernel;
    });
  });
}

}  // namespace

void register_top_k_cuda(OpRegistry& registry) {
  registry.add_cuda("TopK", prepare);
  registry.add_cuda("TopKV2", prepare);
  registry.add_cuda("braid.TopKGrad", prepare_grad);
}

}  // namespace braid
