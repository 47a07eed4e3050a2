// What softmax and its losses share: a warp or a block works on a row of n >= 1 elements. Every row is read
// three times, of which two come from the caches.
#pragma once

#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/common/vector_math.h"

namespace braid::cuda {

/// The threads that work on one row: kBlock: a block, else a warp.
template <bool kBlock>
struct RowGroup {
  __device__ static int size() { return kBlock ? static_cast<int>(blockDim.x) : 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % size(); }
  /// The first row of this group, and from one of its rows to the next.
  __device__ static std::int64_t first() { return grid_index() / size(); }
  __device__ static std::int64_t step() { return grid_size() / size(); }

  template <class Op, class C>
  __device__ static C reduce(C value) {
    if constexpr (kBlock)
      return block_reduce<Op>(value);
    else
      return warp_reduce<Op>(value);
  }
};

/// The maximum of a row and the sum of exp(x - maximum), in all threads of the group.
template <bool kBlock, class T>
__device__ void max_and_sum(const T* x, std::int64_t n, T& max, T& sum) {
  using G = RowGroup<kBlock>;
  const int lane = G::lane(), size = G::size();
  T m = reduce::Max::identity<T>();
#pragma unroll 4
  for (std::int64_t j = lane; j < n; j += size) {
    const T element = x[j];
    reduce::Max::apply(m, element);
  }
  m = G::template reduce<reduce::Max>(m);
  T s = 0;
#pragma unroll 4
  for (std::int64_t j = lane; j < n; j += size) s += vec::exp(x[j] - m);
  max = m;
  sum = G::template reduce<reduce::Sum>(s);
}

/// Launches a kernel over rows of n elements: `by_warp` where rows are short, else `by_block`. Both are made
/// of RowGroup.
template <class... Parameters, class... Arguments>
void launch_rows_of(std::int64_t n, std::int64_t rows, void (*by_warp)(Parameters...),
                    void (*by_block)(Parameters...), StreamRef stream, Arguments... arguments) {
  constexpr std::int64_t kWarpRow = 1024, kMostBlocks = 1 << 20;
  if (rows == 0) return;
  if (n <= kWarpRow) {
    constexpr int kRowsPerBlock = 4;
    launch(by_warp, static_cast<unsigned>(std::min((rows + kRowsPerBlock - 1) / kRowsPerBlock, kMostBlocks)),
           kRowsPerBlock * 32, 0, stream, arguments...);
  } else {
    launch(by_block, static_cast<unsigned>(std::min(rows, kMostBlocks)), n > 8192 ? 1024 : 256, 0, stream,
           arguments...);
  }
}

}  // namespace braid::cuda
