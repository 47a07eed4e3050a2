// Tables' indices sorted by a block each, in shared memory: a stable radix sort from the lowest bits of the
// rows that a table has to their highest. In a pass each warp ranks the keys of its own part, 32 at a time,
// among those of their digit; the counts of all warps and digits are added up; and every key goes where its
// rank says. So ranks follow from positions, and nothing depends on how warps run.
#pragma once

#include <bit>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/row_entries.h"

namespace braid::cuda {

struct IndexTable {
  const void* indices;
  std::int32_t rows, n;
  std::int32_t first_row, first_entry;  // row_entries.h
  std::int16_t sort_bits;               // of a row's number, `rows` too
  std::int8_t position_bits;            // of an index's position in the table
  bool is_index64;
  bool skip_negative;  // such an index is no error: it goes behind the table's rows all the same
};

inline constexpr int kMostIndexTables = 120;  // a kernel's arguments are 4 KiB

struct IndexTables {
  int count = 0;
  IndexTable at[kMostIndexTables];
};
static_assert(sizeof(IndexTables) + 64 <= 4096);

inline int sort_bits(std::int64_t rows) { return std::bit_width(static_cast<std::uint64_t>(rows)); }
inline int position_bits(std::int64_t n) {
  return n == 0 ? 0 : std::bit_width(static_cast<std::uint64_t>(n - 1));
}

/// The row that index k names, or the one behind the table's.
template <class I>
__device__ std::int32_t row_at(const IndexTable& t, std::int32_t k) {
  const std::int64_t index = static_cast<const I*>(t.indices)[k];
  return index >= 0 && index < t.rows ? static_cast<std::int32_t>(index) : t.rows;
}

__device__ inline void report_index(const IndexTable& t, std::int32_t k, StepStatus* status, int op) {
  const std::int64_t index = t.is_index64 ? static_cast<const std::int64_t*>(t.indices)[k]
                                          : static_cast<const std::int32_t*>(t.indices)[k];
  if (index >= 0 || !t.skip_negative) report(status, op, StatusCode::IndexOutOfRange, index, t.rows);
}

__device__ inline std::uint64_t entry_of(const IndexTable& t, std::int32_t row, std::int32_t k) {
  return static_cast<std::uint64_t>(t.first_row + row) << kEntryPositionBits |
         static_cast<std::uint64_t>(t.first_entry + k);
}

inline constexpr int kSortThreads = 1024;
inline constexpr int kSortWarps = kSortThreads / 32;
inline constexpr int kMostDigitBits = 7;
inline constexpr int kMostDigits = 1 << kMostDigitBits;

struct DigitCounts {
  std::uint32_t of[kMostDigits][kSortWarps + 1];  // one more, for the banks
  std::uint32_t before[kMostDigits];              // keys of lower digits
};
static_assert(sizeof(DigitCounts) % 8 == 0);

/// Keys are row << position bits | position.
template <class KeyType, int kKeysOfThread>
struct TableSort {
  using Key = KeyType;
  static constexpr int kKeys = kKeysOfThread;  // of a thread, at most
  static constexpr std::int64_t kMost = std::int64_t{kKeys} * kSortThreads;
  static std::size_t shared_bytes(std::int64_t keys) {
    return sizeof(DigitCounts) + static_cast<std::size_t>(keys) * kSortThreads * sizeof(Key);
  }
};
using NarrowSort = TableSort<std::uint32_t, 16>;
using WideSort = TableSort<std::uint64_t, 8>;

/// The sum of the lanes' values up to the own one.
__device__ inline std::uint32_t sum_up_to(std::uint32_t value, int lane) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(0xffffffffU, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

/// Counts of warps become those of the warps before, and `before` is made. All threads of the block call it.
__device__ inline void add_up(DigitCounts& counts, int digits, int warp, int lane) {
  for (int d = warp; d < digits; d += kSortWarps) {
    const std::uint32_t own = counts.of[d][lane];
    const std::uint32_t sum = sum_up_to(own, lane);
    counts.of[d][lane] = sum - own;
    if (lane == 31) counts.before[d] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    std::uint32_t below = 0;
    for (int first = 0; first < digits; first += 32) {
      const int d = first + lane;
      const std::uint32_t own = d < digits ? counts.before[d] : 0;
      const std::uint32_t sum = sum_up_to(own, lane);
      if (d < digits) counts.before[d] = below + sum - own;
      below += __shfl_sync(0xffffffffU, sum, 31);
    }
  }
  __syncthreads();
}

/// The rank of this lane's key among those of its digit in the warp so far.
__device__ inline std::uint32_t ranked(std::uint32_t& count, std::uint32_t digit, int digit_bits, int lane) {
  unsigned peers = 0xffffffffU;
  for (int b = 0; b < digit_bits; ++b) {
    const bool is_set = (digit >> b & 1U) != 0;
    const unsigned ballot = __ballot_sync(0xffffffffU, is_set);
    peers &= is_set ? ballot : ~ballot;
  }
  const auto lower = static_cast<std::uint32_t>(__popc(peers & ((1U << lane) - 1)));
  const std::uint32_t rank = count + lower;
  __syncwarp();
  if (lower == 0) count += static_cast<std::uint32_t>(__popc(peers));
  __syncwarp();
  return rank;
}

/// keys[i] of index first + 32 i. Reports come later, so that all loads are in flight together.
template <class I, class Key, int kKeys>
__device__ void load_keys(const IndexTable& t, int first, int turns, Key (&keys)[kKeys]) {
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int k = first + i * 32;
    keys[i] = ~Key{0};  // behind all others, as the sort is stable
    if (i < turns && k < t.n)
      keys[i] = static_cast<Key>(row_at<I>(t, k)) << t.position_bits | static_cast<Key>(k);
  }
}

/// Block b sorts table b.
template <class Sort>
__global__ void __launch_bounds__(kSortThreads)
    sort_tables_kernel(const __grid_constant__ IndexTables tables, std::uint64_t* entries, StepStatus* status,
                       int op) {
  using Key = typename Sort::Key;
  extern __shared__ std::uint64_t shared[];
  auto& counts = *reinterpret_cast<DigitCounts*>(shared);
  Key* const moved = reinterpret_cast<Key*>(shared + sizeof(DigitCounts) / 8);
  const IndexTable& t = tables.at[blockIdx.x];
  if (t.n == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int turns = (t.n + kSortThreads - 1) / kSortThreads;  // keys of a thread here
  const int first = warp * turns * 32 + lane;                 // then every 32nd

  Key keys[Sort::kKeys];
  if (t.is_index64)
    load_keys<std::int64_t>(t, first, turns, keys);
  else
    load_keys<std::int32_t>(t, first, turns, keys);
#pragma unroll
  for (int i = 0; i < Sort::kKeys; ++i) {
    const int k = first + i * 32;
    if (i < turns && k < t.n && static_cast<std::int32_t>(keys[i] >> t.position_bits) == t.rows)
      report_index(t, k, status, op);
  }

  const int passes = (t.sort_bits + kMostDigitBits - 1) / kMostDigitBits;
  const int digit_bits = passes == 0 ? 0 : (t.sort_bits + passes - 1) / passes;
  const int digits = 1 << digit_bits;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = t.position_bits + pass * digit_bits;
    const auto digit_of = [&](Key key) {
      return static_cast<std::uint32_t>(key >> shift) & static_cast<std::uint32_t>(digits - 1);
    };
    for (int d = warp; d < digits; d += kSortWarps) counts.of[d][lane] = 0;
    __syncthreads();
    std::uint32_t ranks[Sort::kKeys];
#pragma unroll
    for (int i = 0; i < Sort::kKeys; ++i) {
      if (i >= turns) continue;
      const std::uint32_t digit = digit_of(keys[i]);
      ranks[i] = ranked(counts.of[digit][warp], digit, digit_bits, lane);
    }
    __syncthreads();
    add_up(counts, digits, warp, lane);
#pragma unroll
    for (int i = 0; i < Sort::kKeys; ++i) {
      if (i >= turns) continue;
      const std::uint32_t digit = digit_of(keys[i]);
      moved[counts.before[digit] + counts.of[digit][warp] + ranks[i]] = keys[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Sort::kKeys; ++i)
      if (i < turns) keys[i] = moved[first + i * 32];
  }
#pragma unroll
  for (int i = 0; i < Sort::kKeys; ++i) {
    const int k = first + i * 32;
    if (i >= turns || k >= t.n) continue;
    const Key positions = (Key{1} << t.position_bits) - 1;
    entries[t.first_entry + k] = entry_of(t, static_cast<std::int32_t>(keys[i] >> t.position_bits),
                                          static_cast<std::int32_t>(keys[i] & positions));
  }
}

/// `most`: indices of the largest table.
template <class Sort>
void sort_tables(const KernelArgs& a, const IndexTables& tables, std::int64_t most, std::uint64_t* entries) {
  if (most == 0) return;
  // Every thread that gets here sets the same limit, so none disturbs another.
  BRAID_CUDA_CHECK(cudaFuncSetAttribute(sort_tables_kernel<Sort>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(Sort::shared_bytes(Sort::kKeys))));
  const std::size_t bytes = Sort::shared_bytes((most + kSortThreads - 1) / kSortThreads);
  launch(sort_tables_kernel<Sort>, static_cast<unsigned>(tables.count), kSortThreads, bytes, a.stream, tables,
         entries, a.status, a.op);
}

}  // namespace braid::cuda
