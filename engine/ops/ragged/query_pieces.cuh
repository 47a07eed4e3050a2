// What kernels of attention by one query a row have in common. Rows are cut into pieces of kQueryPiece keys,
// counted from a row's first; a block has a head of a piece. Its warps take keys in turns, a lane some
// columns of each.
#pragma once

#include <limits>

#include "engine/ops/ragged/attention_args.cuh"

namespace braid::cuda::query {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;
inline constexpr int kQueryPiece = 256;

template <class E>
using Computed = std::conditional_t<std::is_same_v<E, double>, double, float>;

/// In device memory.
struct Pieces {
  std::int64_t* longest;  // [1]
  std::int32_t* first;    // [rows + 1]: pieces of the rows before
  std::int32_t* rows;     // [most]: of each piece, its row
  void* parts;            // [most, heads, width]: what a piece gives, in the type that is computed in
  void* sums;             // [most, heads, 2]: of softmax, the largest score and the sum of exp(score - that)
  std::int64_t most;

  static std::int64_t most_of(std::int64_t values, std::int64_t rows) { return values / kQueryPiece + rows; }
};

/// Checks all offsets, finds the longest row, and cuts rows into pieces. One block.
__global__ void __launch_bounds__(kThreads)
    plan_pieces_kernel(Pieces pieces, DeviceOffsets offsets, std::int64_t max_length, StepStatus* status,
                       int op) {
  __shared__ unsigned long long longest;
  __shared__ int of_warps[kWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const auto most = static_cast<int>(pieces.most);
  if (thread == 0) longest = 1;
  __syncthreads();
  int before = 0;
  for (std::int64_t base = 0; base < offsets.rows; base += kThreads) {
    const std::int64_t row = base + thread;
    std::int64_t length = 0;
    if (row < offsets.rows) {
      offsets.check(row, status, op);
      if (offsets.is_good(row)) length = offsets.length(row);
      if (max_length > 0 && length > max_length)
        report(status, op, StatusCode::IndexOutOfRange, length, max_length + 1);
      atomicMax(&longest, static_cast<unsigned long long>(length));
    }
    const int count = static_cast<int>((length + kQueryPiece - 1) / kQueryPiece);
    int up_to_here = count;
    for (int step = 1; step < 32; step *= 2) {
      const int more = __shfl_up_sync(~0U, up_to_here, step);
      if (lane >= step) up_to_here += more;
    }
    if (lane == 31) of_warps[warp] = up_to_here;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) up_to_here += of_warps[w];
    }
    // Rows that overlap, which is reported, could have more pieces than there is room for.
    const int first = min(before + up_to_here - count, most), end = min(before + up_to_here, most);
    if (row < offsets.rows) {
      pieces.first[row] = first;
      for (int piece = first; piece < end; ++piece) pieces.rows[piece] = static_cast<std::int32_t>(row);
      if (row == offsets.rows - 1) pieces.first[offsets.rows] = end;
    }
    for (int w = 0; w < kWarps; ++w) before += of_warps[w];
    __syncthreads();
  }
  if (thread == 0) {
    if (offsets.rows == 0) pieces.first[0] = 0;
    *pieces.longest = static_cast<std::int64_t>(longest);
  }
}

__device__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }
/// A lane's columns of a vector of up to kWidth numbers: kPack at a time.
template <class C, int kWidth, int kPack>
struct Columns {
  static constexpr int kPacks = kWidth / (32 * kPack);
  C at[kPacks][kPack] = {};

  static __device__ int column(int pack) { return (pack * 32 + lane_of_thread()) * kPack; }
  template <class E>
  __device__ void load(const E* from, int width) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= width) continue;
      const auto x = *reinterpret_cast<const Pack<E, kPack>*>(from + column(p));
#pragma unroll
      for (int i = 0; i < kPack; ++i) at[p][i] = static_cast<C>(x.at[i]);
    }
  }
  template <class E>
  __device__ void store_as(E* to, int width, C by) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= width) continue;
      Pack<E, kPack> x;
#pragma unroll
      for (int i = 0; i < kPack; ++i) x.at[i] = static_cast<E>(by * at[p][i]);
      *reinterpret_cast<Pack<E, kPack>*>(to + column(p)) = x;
    }
  }
  /// by times this, at element `first` of `to`.
  template <class E>
  __device__ void store(void* to, bool is_half, std::int64_t first, int width, C by) const {
    if (is_half)
      store_as(static_cast<E*>(to) + first, width, by);
    else
      store_as(static_cast<C*>(to) + first, width, by);
  }
  __device__ void add(const Columns& x, C by) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i) at[p][i] += by * x.at[p][i];
  }
  __device__ void scale(C by) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i) at[p][i] *= by;
  }
  /// This lane's part.
  __device__ C dot(const Columns& x) const {
    C sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum += at[p][i] * x.at[p][i];
    return sum;
  }
};

template <class C>
__device__ C sum_of_warp(C x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}

/// The sum of what the block's warps have, each `by` its own factor; the first warp gets it.
template <class C, int kWidth, int kPack>
__device__ void add_warps(Columns<C, kWidth, kPack>& x, C by) {
  using X = Columns<C, kWidth, kPack>;
  __shared__ C parts[kWarps][kWidth];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  x.scale(by);
#pragma unroll
  for (int p = 0; p < X::kPacks; ++p)
#pragma unroll
    for (int i = 0; i < kPack; ++i) parts[warp][X::column(p) + i] = x.at[p][i];
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int p = 0; p < X::kPacks; ++p)
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      C sum = parts[0][X::column(p) + i];
      for (int w = 1; w < kWarps; ++w) sum += parts[w][X::column(p) + i];
      x.at[p][i] = sum;
    }
}

/// What softmax has seen so far: the largest score, and the sum of exp(score - that).
template <class C>
struct RunningSum {
  C most = -std::numeric_limits<C>::infinity(), sum = 0;

  /// The factor that what was weighed before is to be multiplied by.
  __device__ C rise(C score) {
    if (!(score > most)) return C(1);
    const C factor = exp(most - score);
    most = score;
    sum *= factor;
    return factor;
  }
  __device__ C weigh(C score) {
    const C weight = exp(score - most);
    sum += weight;
    return weight;
  }
};
/// Of all warps. Returns the factor of this one.
template <class C>
__device__ C join_warps(RunningSum<C>& mine) {
  __shared__ C most[kWarps], sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (lane_of_thread() == 0) {
    most[warp] = mine.most;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  RunningSum<C> all;
  for (int w = 0; w < kWarps; ++w) all.most = most[w] > all.most ? most[w] : all.most;
  for (int w = 0; w < kWarps; ++w)
    if (sums[w] != 0) all.sum += sums[w] * exp(most[w] - all.most);
  const C factor = mine.sum != 0 ? exp(mine.most - all.most) : C(0);
  mine = all;
  return factor;
}

}  // namespace braid::cuda::query
