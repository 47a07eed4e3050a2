// A block's part of the sorted entries in shared memory, and the sums of the runs that begin there: what
// kernels that walk rows have in common.
#pragma once

#include <algorithm>

#include "engine/ops/optimizer/row_runs.cuh"

namespace braid::cuda {

/// kThreads entries, the one before, and those behind that a short run may have, or is looked for among.
struct RowTile {
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kEntries = 1 + kThreads + kShort + kRunAhead;

  std::uint32_t rows[kEntries], positions[kEntries];
  std::uint16_t starts[kThreads];  // entries that are the first of their runs, counted from the tile's first
  std::int32_t starts_of_warp[kWarps];
  std::int32_t first_table, last_table;  // of the tile's rows

  /// Of the entry; one that no table has behind the last.
  __device__ std::uint32_t row(int at) const { return rows[1 + at]; }
  __device__ std::uint32_t position(int at) const { return positions[1 + at]; }
};

/// Reads the tile that begins with entry `first` and returns its number of starts. All threads of the block
/// call it.
__device__ inline int load_tile(RowTile& tile, const RowTables& tables, const RowRuns& runs,
                                std::int64_t first) {
  const int own = static_cast<int>(threadIdx.x), lane = own % kWarp, warp = own / kWarp;
  for (int i = own; i < RowTile::kEntries; i += kThreads) {
    const std::uint64_t entry = runs.entry(first - 1 + i);
    tile.rows[i] = static_cast<std::uint32_t>(entry >> 32);
    tile.positions[i] = static_cast<std::uint32_t>(entry);
  }
  __syncthreads();
  const bool is_start = first + own < runs.n && tile.row(own) != tile.row(own - 1);
  const unsigned starts = __ballot_sync(kAllLanes, is_start);
  if (lane == 0) tile.starts_of_warp[warp] = __popc(starts);
  const auto last = static_cast<int>(min(runs.n - first, std::int64_t{kThreads})) - 1;
  if (own == 0) tile.first_table = tables.index_of(tile.row(0), 0, tables.count);
  if (own == kWarp) tile.last_table = tables.index_of(tile.row(last), 0, tables.count);
  __syncthreads();
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < RowTile::kWarps; ++w) {
    const int count = tile.starts_of_warp[w];
    before += w < warp ? count : 0;
    all += count;
  }
  if (is_start) tile.starts[before + __popc(starts & ((1U << lane) - 1))] = static_cast<std::uint16_t>(own);
  __syncthreads();
  return all;
}

/// The packs of a row that a lane has: kPieces of them, `step` columns apart, from `column` on.
struct LanePieces {
  std::int32_t column, step, width;

  __device__ bool has(int piece) const { return column + piece * step < width; }
  __device__ std::int32_t at(int piece) const { return column + piece * step; }
};

/// The sums of the gradients of the run that begins at entry `at` of the tile, which is entry e, in the
/// lane's pieces of it; zeros where it has none.
template <class V, int kPack, int kPieces>
__device__ void sum_of_run(const RowTile& tile, int at, const RowTable& t, const RowRuns& runs,
                           std::int64_t e, const LanePieces& own, Pack<float, kPack> (&sums)[kPieces]) {
  using Elements = Pack<float, kPack>;
  constexpr int kAhead =
      kPieces * kPack > 8 ? kRunAhead / 2 : kRunAhead;  // entries, whose loads are under way
  const std::uint32_t row = tile.row(at);
#pragma unroll
  for (int p = 0; p < kPieces; ++p) sums[p] = {};
  if (tile.row(at + kShort) == row) {
    bool is_first = true;
    for (std::int64_t next = e; is_first || runs.row(next) == row; next += runs.joined()) {
      const float* const from = runs.partial(next, is_first, own.width);
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        if (own.has(p)) add(sums[p], *reinterpret_cast<const Elements*>(from + own.at(p)));
      is_first = false;
    }
    return;
  }
  const LoadValues<V, kPack> values(t, own.column);
  const int step = own.step / kPack;
  for (int next = at; tile.row(next) == row; next += kAhead) {  // ends before the tile's entries do
    std::int32_t rows[kAhead];
    float weights[kAhead];
    Pack<V, kPack> stored[kAhead][kPieces];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t position = tile.position(tile.row(next + k) == row ? next + k : next) -
                                    static_cast<std::uint32_t>(t.first_entry);
      rows[k] = static_cast<std::int32_t>(t.value_of(position));
      weights[k] = values.weight_of(position);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Pack<V, kPack>* const from = values.at(rows[k]);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) stored[k][p] = own.has(p) ? from[p * step] : Pack<V, kPack>{};
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (tile.row(next + k) != row) break;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) add(sums[p], values.weighted(stored[k][p], weights[k]));
    }
  }
}

/// The same of a pack.
template <class V, int kPack>
__device__ Pack<float, kPack> sum_of_run(const RowTile& tile, int at, const RowTable& t, const RowRuns& runs,
                                         std::int64_t e, std::int64_t width, std::int64_t column) {
  Pack<float, kPack> sum[1];
  sum_of_run<V>(tile, at, t, runs, e,
                LanePieces{static_cast<std::int32_t>(column), 0, static_cast<std::int32_t>(width)}, sum);
  return sum[0];
}

}  // namespace braid::cuda
