#include "engine/ops/nn/filter_order.h"

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"

namespace braid::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;

template <class T>
__device__ T sum_of(T a, T b) {
  return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
}

/// to[column, row] = (kAdd: +) from[row, column], a block of kTile x kTileRows threads a tile.
template <class T, bool kAdd>
__global__ void __launch_bounds__(kTile* kTileRows)
    swap_kernel(const T* from, T* to, std::int64_t rows, std::int64_t columns, std::int64_t across) {
  __shared__ T tile[kTile][kTile + 1];
  const std::int64_t first_row = blockIdx.x / across * kTile, first_column = blockIdx.x % across * kTile;
  const auto lane = static_cast<std::int64_t>(threadIdx.x);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows)
    if (first_row + i < rows && first_column + lane < columns)
      tile[i][lane] = from[(first_row + i) * columns + first_column + lane];
  __syncthreads();
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows)
    if (first_column + i < columns && first_row + lane < rows) {
      T& result = to[(first_column + i) * rows + first_row + lane];
      result = kAdd ? sum_of(result, tile[lane][i]) : tile[lane][i];
    }
}

/// Element i of the graph's order [taps, in, out] is element place(i) of [out, in, taps].
__device__ std::int64_t place_of(const FilterOrder& order, std::int64_t i) {
  const std::int64_t rest = i / order.out, o = i - rest * order.out;
  const std::int64_t tap = rest / order.in, channel = rest - tap * order.in;
  return (o * order.in + channel) * order.taps + tap;
}
template <class T, bool kTo, bool kAdd>
__global__ void reorder_kernel(FilterOrder order, const T* from, T* to, std::int64_t n) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    if constexpr (kTo)
      to[place_of(order, i)] = from[i];
    else if constexpr (kAdd)
      to[i] = sum_of(to[i], from[place_of(order, i)]);
    else
      to[i] = from[place_of(order, i)];
  }
}

template <class T, bool kAdd>
void swap(StreamRef stream, const T* from, T* to, std::int64_t rows, std::int64_t columns) {
  const std::int64_t across = (columns + kTile - 1) / kTile;
  launch(swap_kernel<T, kAdd>, static_cast<unsigned>((rows + kTile - 1) / kTile * across),
         dim3(kTile, kTileRows), 0, stream, from, to, rows, columns, across);
}

/// What is there plus `from`, or a copy.
template <class T, bool kAdd>
__global__ void take_kernel(const T* from, T* to, std::int64_t n) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size())
    to[i] = kAdd ? sum_of(to[i], from[i]) : from[i];
}

template <class T>
void to_order(StreamRef stream, const FilterOrder& order, const T* from, T* to) {
  const std::int64_t n = order.elements();
  if (order.same) return launch(take_kernel<T, false>, blocks_for(n), kThreads, 0, stream, from, to, n);
  if (!order.nchw) return swap<T, false>(stream, from, to, order.taps * order.in, order.out);
  launch(reorder_kernel<T, true, false>, blocks_for(n), kThreads, 0, stream, order, from, to, n);
}

template <class T>
void from_order(StreamRef stream, const FilterOrder& order, const T* from, T* to, bool add) {
  const std::int64_t n = order.elements(), rows = order.taps * order.in;
  if (order.same)
    return launch(add ? take_kernel<T, true> : take_kernel<T, false>, blocks_for(n), kThreads, 0, stream,
                  from, to, n);
  if (!order.nchw)
    return add ? swap<T, true>(stream, from, to, order.out, rows)
               : swap<T, false>(stream, from, to, order.out, rows);
  launch(add ? reorder_kernel<T, false, true> : reorder_kernel<T, false, false>, blocks_for(n), kThreads, 0,
         stream, order, from, to, n);
}

template <class With>
void with_type(DType dtype, const With& with) {
  if (dtype == DType::Float16) return with(Float16{});
  if (dtype == DType::BFloat16) return with(BFloat16{});
  with(float{});
}

}  // namespace

void to_cudnn(StreamRef stream, const FilterOrder& order, const void* from, void* to) {
  with_type(order.dtype,
            [&]<class T>(T) { to_order(stream, order, static_cast<const T*>(from), static_cast<T*>(to)); });
}

void from_cudnn(StreamRef stream, const FilterOrder& order, const void* from, void* to, bool add) {
  with_type(order.dtype, [&]<class T>(T) {
    from_order(stream, order, static_cast<const T*>(from), static_cast<T*>(to), add);
  });
}

}  // namespace braid::cuda
