// Kernels that update the rows of tables by grouped gradients: a block takes kThreads of the sorted entries,
// and its lanes the rows whose runs begin there. What is done for a row as a whole is done by each of its
// lanes, so few lanes take a row, with several packs of it each, and a warp several rows.
#pragma once

#include <algorithm>
#include <bit>

#include "engine/ops/optimizer/row_tile.cuh"

namespace braid::cuda {

// Blocks of a multiprocessor: what registers leave room for without spills.
inline constexpr int kBlocksByElement = 3, kBlocksByRow = 3;
// Elements of a row that a lane has, where rows are wide.
inline constexpr int kElementsByElement = 8, kElementsByRow = 16;
template <int kPack, int kElements>
inline constexpr int kPiecesOf = std::max(1, std::min(4, kElements / kPack));

/// How many lanes share a row: as many as it has packs; of wide rows few with several packs each.
inline int lanes_of_row(std::int64_t width, int pack, int pieces) {
  constexpr std::int64_t kFewLanes = 8;
  const std::int64_t packs = (width + pack - 1) / pack;
  const std::int64_t lanes =
      packs <= kFewLanes ? packs : std::max<std::int64_t>(kFewLanes, (packs + pieces - 1) / pieces);
  return static_cast<int>(std::min<std::uint64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(lanes, 1))), kWarp));
}

/// Where the lanes of a thread's rows are, and what they share.
struct RowLanes {
  int column_lane, group, groups;
  unsigned mask;  // those of a row, in their warp

  __device__ explicit RowLanes(int lanes)
      : column_lane(static_cast<int>(threadIdx.x) & (lanes - 1)),
        group(static_cast<int>(threadIdx.x) / lanes),
        groups(kThreads / lanes) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    mask = lanes == kWarp ? kAllLanes : ((1U << lanes) - 1) << (lane - column_lane);
  }
};

/// Optimizers whose slots are as large as the table. `row_lanes`: of lanes_of_row().
template <class V, int kPack, bool kBasic>
__global__ void __launch_bounds__(kThreads, kBasic ? kBlocksByElement : 1)
    update_rows_kernel(const __grid_constant__ RowTables tables, const __grid_constant__ RowRuns runs,
                       const __grid_constant__ OptimizerSpec spec, const StepParams* params,
                       const float* factor, int row_lanes) {
  constexpr int kPieces = kPiecesOf<kPack, kElementsByElement>;
  __shared__ PreparedUpdate shared;
  __shared__ RowTile tile;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads;
  const int starts = load_tile(tile, tables, runs, first);
  if (starts == 0) return;
  load_update(shared, spec, params, factor);
  const PreparedUpdate u = shared;
  const RowLanes lanes(row_lanes);
  const auto width = static_cast<std::int32_t>(tables.width);
  const int step = row_lanes * kPack;
  for (int s = lanes.group; s < starts; s += lanes.groups) {
    const int at = tile.starts[s];
    const RowTable& t = tables.at[tables.index_of(tile.row(at), tile.first_table, tile.last_table + 1)];
    const auto row = static_cast<std::int32_t>(tile.row(at)) - t.first_row;
    if (row >= t.rows) continue;  // an index out of range
    float* const slots[kSlots] = {t.slots[0], t.slots[1], t.slots[2]};
    for (int base = 0; base < width; base += step * kPieces) {
      const LanePieces own{base + lanes.column_lane * kPack, step, width};
      Pack<float, kPack> sums[kPieces];
      sum_of_run<V>(tile, at, t, runs, first + at, own, sums);
      with_formula<kBasic>(u, [&]<class Formula>() {
        update_packs<Formula, kBasic>(u, sums, t.weights, slots,
                                      static_cast<std::int64_t>(row) * width + own.column, step,
                                      [&](int piece) { return own.has(piece); });
      });
    }
  }
}

/// Row-wise Adagrad: its accumulator of a row is a number, and what is added to it the mean of the gradient's
/// squares.
template <class V, int kPack, bool kBasic>
__global__ void __launch_bounds__(kThreads, kBasic ? kBlocksByRow : 1)
    update_whole_rows_kernel(const __grid_constant__ RowTables tables, const __grid_constant__ RowRuns runs,
                             const __grid_constant__ OptimizerSpec spec, const StepParams* params,
                             const float* factor, int row_lanes) {
  constexpr int kPieces = kPiecesOf<kPack, kElementsByRow>;
  using Elements = Pack<float, kPack>;
  __shared__ PreparedUpdate shared;
  __shared__ RowTile tile;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads;
  const int starts = load_tile(tile, tables, runs, first);
  if (starts == 0) return;
  load_update(shared, spec, params, factor);
  const PreparedUpdate u = shared;
  const RowLanes lanes(row_lanes);
  const auto width = static_cast<std::int32_t>(tables.width);
  const int step = row_lanes * kPack, span = step * kPieces;
  for (int s = lanes.group; s < starts; s += lanes.groups) {
    const int at = tile.starts[s];
    const RowTable& t = tables.at[tables.index_of(tile.row(at), tile.first_table, tile.last_table + 1)];
    const auto row = static_cast<std::int32_t>(tile.row(at)) - t.first_row;
    if (row >= t.rows) continue;  // an index out of range
    float* const weights = t.weights + static_cast<std::int64_t>(row) * width;
    float& slot = t.slots[0][row];
    float accumulator = slot, squares = 0;
    LanePieces own{lanes.column_lane * kPack, step, width};
    Elements sums[kPieces], w[kPieces];
    const auto load = [&] {
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        w[p] = own.has(p) ? load_once<kPack>(weights + own.at(p)) : Elements{};
      sum_of_run<V>(tile, at, t, runs, first + at, own, sums);
    };
    for (int base = 0; base < width; base += span) {
      own.column = base + lanes.column_lane * kPack;
      load();
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (!own.has(p)) continue;
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          float g = sums[p].at[i] * u.grad_scale;
          if constexpr (!kBasic) g = optim::surrounded(u, w[p].at[i], g).g;
          squares += g * g;
        }
      }
    }
    for (int other = 1; other < row_lanes; other *= 2) squares += __shfl_xor_sync(lanes.mask, squares, other);
    accumulator += squares / static_cast<float>(width);
    if (lanes.column_lane == 0) slot = accumulator;
    const float divisor = std::sqrt(accumulator) + u.adagrad_epsilon;
    for (int base = 0; base < width; base += span) {
      own.column = base + lanes.column_lane * kPack;
      if (width > span) load();
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (!own.has(p)) continue;
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          optim::Prepared<float> now{w[p].at[i], sums[p].at[i] * u.grad_scale};
          if constexpr (!kBasic)
            now = optim::surrounded(u, now.w, now.g);
          else if (u.decay != 0)
            now.w -= u.decay * now.w;
          w[p].at[i] = now.w - u.learning_rate * now.g / divisor;
        }
        store_once<kPack>(weights + own.at(p), w[p]);
      }
    }
  }
}

}  // namespace braid::cuda
