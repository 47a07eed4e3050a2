// Deterministic reductions on the device: within a warp, within a block, and down the columns of anything
// that a functor can read. The order of operations follows from shapes alone; there are no atomics. Op is one
// of common/reduce_formulas.h; C is the type to calculate in (Op::Compute<T>).
//
// Columns: [outer, rows, columns] -> [outer, columns]. A block owns up to 32 neighbouring columns and as many
// rows at a time as it has threads for. Few columns with many rows are cut into parts, whose results go
// through scratch memory and a second launch; everything else is one launch.
#pragma once

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/reduce_formulas.h"

namespace braid::cuda {

/// The reduction over a warp's lanes, in all of them. REQUIRES: the whole warp calls.
template <class Op, class C>
__device__ C warp_reduce(C value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const C other = static_cast<C>(__shfl_xor_sync(0xffffffffU, value, distance));
    Op::apply(value, other);
  }
  return value;
}

/// The reduction over a block's threads, in all of them. REQUIRES: the whole block calls; whole warps.
template <class Op, class C>
__device__ C block_reduce(C value) {
  __shared__ C parts[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  value = warp_reduce<Op>(value);
  __syncthreads();  // an earlier call's parts have been read
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : Op::template identity<C>();
  return warp_reduce<Op>(value);
}

/// Puts element_of(i) into sum for i = begin, begin + step, ... below end. Some elements are under way
/// together, however few there are: an addition would wait for each.
template <class Op, class C, class ElementOf>
__device__ void add_strided(const ElementOf& element_of, std::int64_t begin, std::int64_t end,
                            std::int64_t step, C& sum) {
  constexpr int kTogether = 8;
  for (std::int64_t i = begin; i < end; i += kTogether * step) {
    C element[kTogether];
#pragma unroll
    for (int e = 0; e < kTogether; ++e)
      element[e] = i + e * step < end ? element_of(i + e * step) : Op::template identity<C>();
#pragma unroll
    for (int e = 0; e < kTogether; ++e) Op::apply(sum, element[e]);
  }
}

/// Elements that lie `stride` apart.
template <class C>
struct StridedElements {
  const C* first;
  std::int64_t stride;
  __device__ C operator()(std::int64_t i) const { return first[i * stride]; }
};

/// How column reductions are cut. Depends on the shape only.
struct ColumnCut {
  std::int64_t outer = 1, rows = 0, columns = 0;
  int tile = 32;         // columns of a block, a power of two
  unsigned threads = 0;  // of a block
  std::int64_t tiles = 1, parts = 1, part_rows = 0;

  std::int64_t blocks() const { return outer * tiles * parts; }
  std::int64_t outputs() const { return outer * columns; }
};

/// `may_split`: rows may be cut into parts.
inline ColumnCut cut_columns(std::int64_t outer, std::int64_t rows, std::int64_t columns, bool may_split) {
  constexpr std::int64_t kBlocks = 132;         // about as many as there are multiprocessors
  constexpr std::int64_t kLoads = 32;           // of a thread, from where a second launch pays
  constexpr std::int64_t kBusyThreadLoads = 4;  // of a thread, where rows are few
  constexpr std::int64_t kPartLoads = 8;        // of a thread in each part, at least
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  ColumnCut cut;
  cut.outer = outer;
  cut.rows = rows;
  cut.columns = columns;
  // Eight columns of 4 bytes are a sector: narrower tiles would read memory twice.
  while (cut.tile > 8 && outer * ceil_div(columns, cut.tile) < kBlocks) cut.tile /= 2;
  while (cut.tile > 1 && cut.tile / 2 >= columns) cut.tile /= 2;
  cut.tiles = std::max<std::int64_t>(ceil_div(columns, cut.tile), 1);
  const std::int64_t lanes = 1024 / cut.tile, loads = ceil_div(rows, lanes);
  if (may_split && loads > kLoads && outer * cut.tiles < kBlocks)
    cut.parts = std::min(loads / kPartLoads, ceil_div(2 * kBlocks, outer * cut.tiles));
  cut.part_rows = ceil_div(rows, cut.parts);
  const std::int64_t wanted = ceil_div(cut.part_rows, kBusyThreadLoads) * cut.tile;
  cut.threads = static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(wanted, 32) * 32, 32, 1024));
  return cut;
}

/// load(outer, column) gives a functor from row to element; store(output, value) gets output = (part * outer
/// + o) * columns + column.
template <class Op, class C, class Load, class Store>
__global__ void __launch_bounds__(1024) columns_kernel(ColumnCut cut, Load load, Store store) {
  __shared__ C sums[32 * 33];  // [warps][tile + 1]
  const int tile = cut.tile, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int row_lane = static_cast<int>(threadIdx.x) / tile, lanes = static_cast<int>(blockDim.x) / tile;
  const std::int64_t blocks = cut.outer * cut.tiles * cut.parts;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t slice = block / cut.tiles;
    const std::int64_t first = (block - slice * cut.tiles) * tile;
    const std::int64_t part = slice / cut.outer, o = slice - part * cut.outer;
    const std::int64_t column = first + static_cast<int>(threadIdx.x) % tile;
    const std::int64_t begin = part * cut.part_rows;
    const std::int64_t end = begin + cut.part_rows < cut.rows ? begin + cut.part_rows : cut.rows;
    C sum = Op::template identity<C>();
    if (column < cut.columns) {
      add_strided<Op>(load(o, column), begin + row_lane, end, lanes, sum);
    }
    // Lanes of a warp with the same column, then warps.
    for (int distance = 16; distance >= tile; distance /= 2) {
      const C other = static_cast<C>(__shfl_xor_sync(0xffffffffU, sum, distance));
      Op::apply(sum, other);
    }
    if (lane < tile) sums[warp * (tile + 1) + lane] = sum;
    __syncthreads();
    for (int j = warp; j < tile; j += warps) {
      C total = lane < warps ? sums[lane * (tile + 1) + j] : Op::template identity<C>();
      total = warp_reduce<Op>(total);
      if (lane == 0 && first + j < cut.columns) store(slice * cut.columns + first + j, total);
    }
    __syncthreads();  // the sums are overwritten by the next block's
  }
}

template <class C>
struct PartLoad {
  const C* parts;  // [parts, outputs]
  std::int64_t outputs;
  __device__ StridedElements<C> operator()(std::int64_t, std::int64_t column) const {
    return {parts + column, outputs};
  }
};
template <class C>
struct PartStore {
  C* parts;
  __device__ void operator()(std::int64_t output, C value) const { parts[output] = value; }
};

/// A column reduction: cut in `prepare`, launched with functors that hold the run's pointers.
template <class Op, class C>
class ColumnReduction {
 public:
  /// [outer, rows, columns] -> [outer, columns].
  ColumnReduction(std::int64_t outer, std::int64_t rows, std::int64_t columns)
      : cut_(cut_columns(outer, rows, columns, true)) {}

  /// 256-byte aligned.
  std::size_t scratch_bytes() const {
    return cut_.parts > 1 ? static_cast<std::size_t>(cut_.parts * cut_.outputs()) * sizeof(C) : 0;
  }

  /// load(outer, column) gives a functor from row to C; store(output, C) is called once for each output in
  /// [0, outer * columns).
  template <class Load, class Store>
  void run(StreamRef stream, Load load, Store store, void* scratch) const {
    if (cut_.outputs() == 0) return;
    if (cut_.parts == 1) return launch_cut(stream, cut_, load, store);
    C* parts = static_cast<C*>(scratch);
    launch_cut(stream, cut_, load, PartStore<C>{parts});
    launch_cut(stream, cut_columns(1, cut_.parts, cut_.outputs(), false), PartLoad<C>{parts, cut_.outputs()},
               store);
  }

 private:
  template <class Load, class Store>
  static void launch_cut(StreamRef stream, const ColumnCut& cut, Load load, Store store) {
    constexpr std::int64_t kMostBlocks = 1 << 30;
    launch(columns_kernel<Op, C, Load, Store>, static_cast<unsigned>(std::min(cut.blocks(), kMostBlocks)),
           cut.threads, 0, stream, cut, load, store);
  }

  ColumnCut cut_;
};

}  // namespace braid::cuda
