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
inline constexpr int kSumAhead = 4;    // loads in flight, of chunks
inline constexpr int kSumBlocks = 4;  // of a processor, all there at once: others would read all values again
inline constexpr int kWindows = 4;    // that a warp takes one after another
inline constexpr int kRunAhead = 4;   // and of single runs
inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr std::uint64_t kNoEntry = ~std::uint64_t{0};

struct RowRuns {
  const std::uint64_t* entries;  // [n] sorted
  float* partials;               // [windows, 2, width]
  std::int64_t n;
  std::int64_t chunk;  // entries, a power of two above kShort
  int lanes;           // that share a row where it is summed: a power of two

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
  Pack<float, kPack> pack;
  if constexpr (kPack % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kPack; i += 4) {
      const float4 x = __ldcs(reinterpret_cast<const float4*>(from + i));
      pack.at[i] = x.x, pack.at[i + 1] = x.y, pack.at[i + 2] = x.z, pack.at[i + 3] = x.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.at[i] = __ldcs(from + i);
  }
  return pack;
}
template <int kPack>
__device__ void store_once(float* to, const Pack<float, kPack>& x) {
  if constexpr (kPack % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kPack; i += 4)
      __stcs(reinterpret_cast<float4*>(to + i), float4{x.at[i], x.at[i + 1], x.at[i + 2], x.at[i + 3]});
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) __stcs(to + i, x.at[i]);
  }
}

/// The gradients' elements from `column` on. V: the type that they have in memory. Loads and what is done to
/// them are apart, and no load is behind a branch: else each would be waited for before the next.
template <class V, int kPack>
struct LoadValues {
  const RowTable& table;
  const char* first;   // of the values' first row
  std::int32_t bytes;  // of a row's stride
  const float* weights;

  __device__ LoadValues(const RowTable& t, std::int64_t column)
      : table(t),
        first(static_cast<const char*>(t.values) + column * static_cast<std::int64_t>(sizeof(V))),
        bytes(t.stride * static_cast<std::int32_t>(sizeof(V))),
        weights(t.value_weights) {}

  /// Of the values' row that an index has.
  __device__ const Pack<V, kPack>* at(std::int32_t value) const {
    return reinterpret_cast<const Pack<V, kPack>*>(first + static_cast<std::int64_t>(value) * bytes);
  }
  /// Of the index at a position of the table.
  __device__ float weight_of(std::int64_t position) const { return weights ? weights[position] : 1.0F; }
  /// `weight` counts where the table has weights.
  __device__ Pack<float, kPack> weighted(const Pack<V, kPack>& stored, float weight) const {
    Pack<float, kPack> values;
#pragma unroll
    for (int i = 0; i < kPack; ++i) values.at[i] = static_cast<float>(stored.at[i]);
    if (weights) {
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

/// The run that a warp knows the first entry of.
struct KnownRun {
  std::int64_t row = -1, first = 0;
};

/// Calls body(begin, is_first) for the parts of `length` entries, a power of two, that begin in window w, of
/// runs that are longer than `least`. `known` is of windows before, and then of this one. All lanes of a warp
/// call it together.
template <class Body>
__device__ void for_begins(const RowRuns& runs, std::int64_t w, std::int64_t length, std::int64_t least,
                           KnownRun& known, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t e = w * kShort + lane;
  // All loads before the first use.
  const std::int64_t own = runs.row(e), before = runs.row(e - 1), ahead = runs.row(e + least),
                     behind = runs.row(e - length);
  const bool is_first = e < runs.n && ahead == own && before != own;
  bool is_later = e < runs.n && behind == own;
  if (__ballot_sync(kAllLanes, is_later) != 0) {
    // It is the run of the window's first entry, as parts are longer than windows.
    const std::int64_t row = __shfl_sync(kAllLanes, own, 0);
    if (known.row != row) known = {row, runs.first_of(row, w * kShort, lane)};
    is_later = is_later && ((e - known.first) & (length - 1)) == 0;
  }
  if (const unsigned starts = __ballot_sync(kAllLanes, before != own); starts != 0) {
    const int last = kWarp - 1 - __clz(static_cast<int>(starts));
    known = {__shfl_sync(kAllLanes, own, last), w * kShort + last};
  }
  const unsigned firsts = __ballot_sync(kAllLanes, is_first);
  for (unsigned begins = __ballot_sync(kAllLanes, is_first || is_later); begins != 0; begins &= begins - 1) {
    const int at = __ffs(static_cast<int>(begins)) - 1;
    body(w * kShort + at, (firsts >> at & 1U) != 0);
  }
}

/// Calls body(w, known) for the windows that the warp takes: some that follow one another, so that few runs
/// are looked for, and more of these while there are.
template <class Body>
__device__ void for_windows(const RowRuns& runs, const Body& body) {
  const std::int64_t windows = (runs.n + kShort - 1) / kShort, warps = grid_size() / kWarp;
  const std::int64_t at_once = min(std::int64_t{kWindows}, (windows + warps - 1) / warps);
  for (std::int64_t first = grid_index() / kWarp * at_once; first < windows; first += warps * at_once) {
    KnownRun known;
    for (std::int64_t w = first; w < min(first + at_once, windows); ++w) body(w, known);
  }
}

/// Adds to `sum` the gradients of the next `count` entries of a warp, whose values' rows and weights its
/// lanes have looked up, an entry each. Groups of lanes take turns.
template <class V, int kPack>
__device__ void add_looked_up(const LoadValues<V, kPack>& values, std::int32_t own_value, float own_weight,
                              int count, int lanes, int group, Pack<float, kPack>& sum) {
  if (count == kWarp && !values.weights) {  // as most are; the same sums in fewer instructions
    take_counted(
        count, lanes, group, [&](int k) { return *values.at(__shfl_sync(kAllLanes, own_value, k)); },
        [&](int k, const Pack<V, kPack>& stored) {
          if (k < kWarp) add(sum, values.weighted(stored, 1.0F));
        });
    return;
  }
  take_counted(
      count, lanes, group,
      [&](int k) {  // behind the last one the first, which is there
        return *values.at(__shfl_sync(kAllLanes, own_value, k < count ? k : 0));
      },
      [&](int k, const Pack<V, kPack>& stored) {
        const float weight = values.weights ? __shfl_sync(kAllLanes, own_weight, k & (kWarp - 1)) : 1.0F;
        if (k < count) add(sum, values.weighted(stored, weight));
      });
}

/// A warp looks at a window of kShort entries and sums the chunks of long runs that begin there.
template <class V, int kPack>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    sum_chunks_kernel(const __grid_constant__ RowTables tables, const __grid_constant__ RowRuns runs) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_lane = lane & (runs.lanes - 1), group = lane / runs.lanes;
  for_windows(runs, [&](std::int64_t w, KnownRun& known) {
    for_begins(runs, w, runs.chunk, kShort, known, [&](std::int64_t begin, bool is_first) {
      const std::int64_t row = row_of(runs.entries[begin]);
      const RowTable& t = tables.of_row(row);
      if (row - t.first_row >= t.rows) return;  // no row of the table
      float* const partial = runs.partial(begin, is_first, tables.width);
      for (std::int64_t piece = 0; piece < tables.width; piece += runs.lanes * kPack) {
        const std::int64_t column = piece + column_lane * kPack;
        const LoadValues<V, kPack> values(t, min(column, tables.width - kPack));
        Pack<float, kPack> sum{};
        std::uint64_t own = runs.entry(begin + lane);
        for (std::int64_t base = 0; base < runs.chunk; base += kWarp) {
          const bool is_own = row_of(own) == row;
          const int count = __popc(__ballot_sync(kAllLanes, is_own));
          const std::uint64_t next =
              base + kWarp < runs.chunk ? runs.entry(begin + base + kWarp + lane) : kNoEntry;
          // Each lane looks up one entry, not all of them every entry.
          const std::int64_t position = is_own ? position_of(own) - t.first_entry : 0;
          add_looked_up(values, static_cast<std::int32_t>(t.value_of(position)), values.weight_of(position),
                        count, runs.lanes, group, sum);
          if (count < kWarp) break;
          own = next;
        }
        join_groups<kPack>(runs.lanes, sum);
        if (group == 0 && column < tables.width)
          *reinterpret_cast<Pack<float, kPack>*>(partial + column) = sum;
      }
    });
  });
}

/// The sums of up to kJoined chunks become that of the first of them.
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    join_chunks_kernel(const __grid_constant__ RowTables tables, const __grid_constant__ RowRuns runs) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_lane = lane & (runs.lanes - 1), group = lane / runs.lanes;
  for_windows(runs, [&](std::int64_t w, KnownRun& known) {
    for_begins(runs, w, runs.joined(), runs.chunk, known, [&](std::int64_t begin, bool is_first) {
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
  });
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

/// Blocks that go through n entries, of which the device has as many as there are at once.
inline unsigned blocks_at_once(std::int64_t n) {
  constexpr unsigned kProcessors = 132;
  return std::min(blocks_for(n), kProcessors * kSumBlocks);
}

/// What sum_of_run() needs of long runs.
template <class V, int kPack>
void sum_long_runs(StreamRef stream, const RowTables& tables, const RowRuns& runs) {
  if (runs.n > kShort)
    launch(sum_chunks_kernel<V, kPack>, blocks_at_once(runs.n), kThreads, 0, stream, tables, runs);
  if (runs.n > runs.chunk)
    launch(join_chunks_kernel<std::min(kPack, 4)>, blocks_for(runs.n), kThreads, 0, stream, tables, runs);
}

}  // namespace braid::cuda
