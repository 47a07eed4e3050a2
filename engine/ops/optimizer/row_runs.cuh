// Runs of equal rows among sorted entries (common/row_entries.h), and the sums of their gradients.
//
// A row that is named often would keep its lanes busy for long. So the gradients of a run of more than kShort
// entries are summed by warps first, in chunks counted from the run's first entry, and the sums of kJoined
// chunks once more. The order of a sum depends on its run's length alone, not on what else is updated.
#pragma once

#include <algorithm>
#include <bit>

#include "engine/ops/common/half.h"
#include "engine/ops/optimizer/sorted_rows.cuh"

namespace braid::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kShort = kWarp;   // entries; windows of so many hold at most two chunks' begins
inline constexpr int kJoined = kWarp;  // chunks
inline constexpr int kSumAhead = 8;    // loads in flight, of chunks
inline constexpr int kRunAhead = 4;    // and of single runs
inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr std::uint64_t kNoEntry = ~std::uint64_t{0};

struct RowRuns {
  const std::uint64_t* entries;  // [n] sorted
  float* partials;               // [windows, 2, width]
  std::int64_t n;
  std::int64_t chunk;  // entries, a power of two above kShort
  int lanes;           // that share a row: a power of two

  __device__ std::uint64_t entry(std::int64_t e) const { return e >= 0 && e < n ? entries[e] : kNoEntry; }
  /// Of that entry, or one that no table has.
  __device__ std::int64_t row(std::int64_t e) const { return row_of(entry(e)); }
  __device__ std::int64_t joined() const { return chunk * kJoined; }
  /// Where the chunk that begins at e has its sum. A window of kShort entries holds at most one begin of a
  /// long run and one that is not its run's first.
  __device__ float* partial(std::int64_t e, bool is_first, std::int64_t width) const {
    return partials + (e / kShort * 2 + (is_first ? 1 : 0)) * width;
  }
  /// The first entry of the row's run, which `high` is in. All lanes of a warp call it together.
  __device__ std::int64_t first_of(std::int64_t row, std::int64_t high, int lane) const {
    // Steps back of 1, 2, 4, ... tell how far the run goes, which is little for most.
    const std::int64_t back = high - (std::int64_t{1} << lane);
    const unsigned before = __ballot_sync(kAllLanes, back < 0 || row_of(entries[back]) < row);
    const int far = __ffs(static_cast<int>(before)) - 1;  // the longest step is behind all entries
    std::int64_t low = max(std::int64_t{0}, high - (std::int64_t{1} << far) + 1);
    if (far > 0) high -= std::int64_t{1} << (far - 1);
    while (low < high) {
      const std::int64_t step = (high - low + kWarp - 1) / kWarp, probe = low + lane * step;
      const bool is_before = probe < high && row_of(entries[probe]) < row;
      const int count = __popc(__ballot_sync(kAllLanes, is_before));
      if (count == 0) return low;
      low += (count - 1) * step + 1;
      high = min(high, low + step - 1);
    }
    return low;
  }
};

template <int kPack>
__device__ void add(Pack<float, kPack>& sum, const Pack<float, kPack>& x) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum.at[i] += x.at[i];
}

/// A pack of a table's row, which a step touches once: it leaves the cache to gradients, which all rows of a
/// bag's ids read.
template <int kPack>
__device__ Pack<float, kPack> load_once(const float* from) {
  if constexpr (kPack == 4) {
    const float4 x = __ldcs(reinterpret_cast<const float4*>(from));
    return {x.x, x.y, x.z, x.w};
  } else {
    static_assert(kPack == 1);
    return {__ldcs(from)};
  }
}
template <int kPack>
__device__ void store_once(float* to, const Pack<float, kPack>& x) {
  if constexpr (kPack == 4)
    __stcs(reinterpret_cast<float4*>(to), float4{x.at[0], x.at[1], x.at[2], x.at[3]});
  else
    __stcs(to, x.at[0]);
}

/// Asks for what a load to come reads, so that it finds it in the cache.
__device__ inline void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/// The gradients' elements from `column` on. V: the type that they have in memory. Loads and what is done to
/// them are apart, and no load is behind a branch: else each would be waited for before the next.
template <class V, int kPack>
struct LoadValues {
  const RowTable& table;
  std::int64_t column;

  /// Of the values' row that an index has.
  __device__ const Pack<V, kPack>* at(std::int64_t value) const {
    return reinterpret_cast<const Pack<V, kPack>*>(static_cast<const V*>(table.values) +
                                                   value * table.stride + column);
  }
  /// Of the index at a position of the table.
  __device__ float weight_of(std::int64_t position) const {
    return table.value_weights ? table.value_weights[position] : 1.0F;
  }
  /// `weight` counts where the table has weights.
  __device__ Pack<float, kPack> weighted(const Pack<V, kPack>& stored, float weight) const {
    Pack<float, kPack> values;
#pragma unroll
    for (int i = 0; i < kPack; ++i) values.at[i] = static_cast<float>(stored.at[i]);
    if (table.value_weights) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) values.at[i] *= weight;
    }
    return values;
  }
};

/// take(k, load(k)) for k < count, of which each group of lanes takes every groups-th, kSumAhead at a time.
/// All lanes of a warp call it with the same count, of at most kWarp, and all of them call both, also for k
/// above.
template <class Load, class Take>
__device__ void take_counted(int count, int lanes, int group, const Load& load, const Take& take) {
  const int groups = kWarp / lanes;
  for (int turn = 0; turn < lanes && turn * groups < count; turn += kSumAhead) {
    decltype(load(0)) values[kSumAhead];
#pragma unroll
    for (int k = 0; k < kSumAhead; ++k) values[k] = load((turn + k) * groups + group);
#pragma unroll
    for (int k = 0; k < kSumAhead; ++k) take((turn + k) * groups + group, values[k]);
  }
}

template <int kPack>
__device__ void join_groups(int lanes, Pack<float, kPack>& sum) {
  for (int other = lanes; other < kWarp; other *= 2) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum.at[i] += __shfl_xor_sync(kAllLanes, sum.at[i], other);
  }
}

/// Calls body(begin, is_first) for the parts of `length` entries, a power of two, that begin in window w, of
/// runs that are longer than `least`. All lanes of a warp call it together.
template <class Body>
__device__ void for_begins(const RowRuns& runs, std::int64_t w, std::int64_t length, std::int64_t least,
                           const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t e = w * kShort + lane;
  // All loads before the first use.
  const std::int64_t own = runs.row(e), before = runs.row(e - 1), ahead = runs.row(e + least),
                     behind = runs.row(e - length);
  const bool is_first = e < runs.n && ahead == own && before != own;
  bool is_later = e < runs.n && behind == own;
  if (__ballot_sync(kAllLanes, is_later) != 0) {
    // It is the run of the window's first entry, as parts are longer than windows.
    const std::int64_t first = runs.first_of(__shfl_sync(kAllLanes, own, 0), w * kShort, lane);
    is_later = is_later && ((e - first) & (length - 1)) == 0;
  }
  const unsigned firsts = __ballot_sync(kAllLanes, is_first);
  for (unsigned begins = __ballot_sync(kAllLanes, is_first || is_later); begins != 0; begins &= begins - 1) {
    const int at = __ffs(static_cast<int>(begins)) - 1;
    body(w * kShort + at, (firsts >> at & 1U) != 0);
  }
}

/// A warp looks at a window of kShort entries and sums the chunks of long runs that begin there.
template <class V, int kPack>
__global__ void __launch_bounds__(kThreads)
    sum_chunks_kernel(const __grid_constant__ RowTables tables, const __grid_constant__ RowRuns runs) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_lane = lane & (runs.lanes - 1), group = lane / runs.lanes;
  const std::int64_t windows = (runs.n + kShort - 1) / kShort;
  for (std::int64_t w = grid_index() / kWarp; w < windows; w += grid_size() / kWarp)
    for_begins(runs, w, runs.chunk, kShort, [&](std::int64_t begin, bool is_first) {
      const std::int64_t row = row_of(runs.entries[begin]);
      const RowTable& t = tables.of_row(row);
      if (row - t.first_row >= t.rows) return;  // no row of the table
      float* const partial = runs.partial(begin, is_first, tables.width);
      for (std::int64_t piece = 0; piece < tables.width; piece += runs.lanes * kPack) {
        const std::int64_t column = piece + column_lane * kPack;
        const LoadValues<V, kPack> values{t, min(column, tables.width - kPack)};
        Pack<float, kPack> sum{};
        std::uint64_t own = runs.entry(begin + lane);
        for (std::int64_t base = 0; base < runs.chunk; base += kWarp) {
          const bool is_own = row_of(own) == row;
          const int count = __popc(__ballot_sync(kAllLanes, is_own));
          const std::uint64_t next =
              base + kWarp < runs.chunk ? runs.entry(begin + base + kWarp + lane) : kNoEntry;
          // Each lane looks up one entry, not all of them every entry.
          const std::int64_t position = is_own ? position_of(own) - t.first_entry : 0;
          const auto own_value = static_cast<std::int32_t>(t.value_of(position));
          const float own_weight = values.weight_of(position);
          take_counted(
              count, runs.lanes, group,
              [&](int k) {  // behind the last one the first, which is there
                return *values.at(__shfl_sync(kAllLanes, own_value, k < count ? k : 0));
              },
              [&](int k, const Pack<V, kPack>& stored) {
                const float weight =
                    t.value_weights ? __shfl_sync(kAllLanes, own_weight, k & (kWarp - 1)) : 1.0F;
                if (k < count) add(sum, values.weighted(stored, weight));
              });
          if (count < kWarp) break;
          own = next;
        }
        join_groups<kPack>(runs.lanes, sum);
        if (group == 0 && column < tables.width)
          *reinterpret_cast<Pack<float, kPack>*>(partial + column) = sum;
      }
    });
}

/// The sums of up to kJoined chunks become that of the first of them.
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    join_chunks_kernel(const __grid_constant__ RowTables tables, const __grid_constant__ RowRuns runs) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_lane = lane & (runs.lanes - 1), group = lane / runs.lanes;
  const std::int64_t windows = (runs.n + kShort - 1) / kShort;
  for (std::int64_t w = grid_index() / kWarp; w < windows; w += grid_size() / kWarp)
    for_begins(runs, w, runs.joined(), runs.chunk, [&](std::int64_t begin, bool is_first) {
      const std::int64_t row = row_of(runs.entries[begin]);
      const RowTable& t = tables.of_row(row);
      if (row - t.first_row >= t.rows) return;
      const int count = __popc(__ballot_sync(kAllLanes, runs.row(begin + lane * runs.chunk) == row));
      for (std::int64_t piece = 0; piece < tables.width; piece += runs.lanes * kPack) {
        const std::int64_t column = piece + column_lane * kPack;
        Pack<float, kPack> sum{};
        const std::int64_t own_column = min(column, tables.width - kPack);
        take_counted(
            count, runs.lanes, group,
            [&](int k) {
              const int at = k < count ? k : 0;
              const float* from = runs.partial(begin + at * runs.chunk, is_first && at == 0, tables.width);
              return *reinterpret_cast<const Pack<float, kPack>*>(from + own_column);
            },
            [&](int k, const Pack<float, kPack>& values) {
              if (k < count) add(sum, values);
            });
        join_groups<kPack>(runs.lanes, sum);
        float* const to = runs.partial(begin, is_first, tables.width);
        if (group == 0 && column < tables.width) *reinterpret_cast<Pack<float, kPack>*>(to + column) = sum;
      }
    });
}

/// A block's part of the entries, in shared memory: kThreads of them, the one before, and those behind that a
/// short run may have, or is looked for among.
struct RowTile {
  static constexpr int kWarps = kThreads / kWarp;

  static constexpr int kEntries = 1 + kThreads + kShort + kRunAhead;

  std::uint64_t entries[kEntries];
  std::uint16_t starts[kThreads];  // entries that are the first of their runs, counted from the tile's first
  std::int32_t starts_of_warp[kWarps];
  std::int32_t first_table, last_table;  // of the tile's rows

  __device__ std::uint64_t entry(int at) const { return entries[1 + at]; }
  __device__ std::int64_t row(int at) const { return row_of(entries[1 + at]); }
};

/// Reads the tile that begins with entry `first` and returns its number of starts. All threads of the block
/// call it.
__device__ inline int load_tile(RowTile& tile, const RowTables& tables, const RowRuns& runs,
                                std::int64_t first) {
  const int own = static_cast<int>(threadIdx.x), lane = own % kWarp, warp = own / kWarp;
  for (int i = own; i < RowTile::kEntries; i += kThreads) tile.entries[i] = runs.entry(first - 1 + i);
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

/// The sum of the gradients of the run that begins at entry `at` of the tile, which is entry e.
template <class V, int kPack>
__device__ Pack<float, kPack> sum_of_run(const RowTile& tile, int at, const RowTable& t, const RowRuns& runs,
                                         std::int64_t e, std::int64_t width, std::int64_t column) {
  using Elements = Pack<float, kPack>;
  const std::int64_t row = tile.row(at);
  if (tile.row(at + kShort) == row) {
    Elements sum = *reinterpret_cast<const Elements*>(runs.partial(e, true, width) + column);
#pragma unroll 2
    for (std::int64_t next = e + runs.joined(); runs.row(next) == row; next += runs.joined()) {
      const Elements further = *reinterpret_cast<const Elements*>(runs.partial(next, false, width) + column);
      add(sum, further);
    }
    return sum;
  }
  const LoadValues<V, kPack> values{t, column};
  const std::int64_t first = position_of(tile.entry(at)) - t.first_entry;
  const Pack<V, kPack> own = *values.at(t.value_of(first));  // one load, which a reference would take apart
  Elements sum = values.weighted(own, values.weight_of(first));
  for (int next = at + 1; tile.row(next) == row; next += kRunAhead) {  // ends before at + kShort
    std::int32_t rows[kRunAhead];
    float weights[kRunAhead];
    Pack<V, kPack> stored[kRunAhead];
#pragma unroll
    for (int k = 0; k < kRunAhead; ++k) {
      const std::int64_t position =
          position_of(tile.entry(tile.row(next + k) == row ? next + k : next)) - t.first_entry;
      rows[k] = static_cast<std::int32_t>(t.value_of(position));
      weights[k] = values.weight_of(position);
    }
#pragma unroll
    for (int k = 0; k < kRunAhead; ++k) stored[k] = *values.at(rows[k]);
#pragma unroll
    for (int k = 0; k < kRunAhead; ++k)
      if (tile.row(next + k) == row) add(sum, values.weighted(stored[k], weights[k]));
  }
  return sum;
}

/// Runs among `n` entries of rows that are `width` wide, with kPack elements a lane.
inline RowRuns runs_of(const std::uint64_t* entries, float* partials, std::int64_t n, std::int64_t width,
                       int pack) {
  const auto packs = static_cast<std::uint64_t>((width + pack - 1) / pack);
  RowRuns runs{.entries = entries,
               .partials = partials,
               .n = n,
               .chunk = 0,
               .lanes = static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(packs), kWarp))};
  runs.chunk = std::max(2 * kShort, kWarp * (kWarp / runs.lanes));
  return runs;
}

/// What sum_of_run() needs of long runs.
template <class V, int kPack>
void sum_long_runs(StreamRef stream, const RowTables& tables, const RowRuns& runs) {
  if (runs.n > kShort)
    launch(sum_chunks_kernel<V, kPack>, blocks_for(runs.n), kThreads, 0, stream, tables, runs);
  if (runs.n > runs.chunk)
    launch(join_chunks_kernel<kPack>, blocks_for(runs.n), kThreads, 0, stream, tables, runs);
}

}  // namespace braid::cuda
