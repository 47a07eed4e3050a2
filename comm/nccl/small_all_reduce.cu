#include <cuda_runtime.h>

#include <algorithm>

#include "base/cuda/check.h"
#include "comm/nccl/peer_signals.cuh"
#include "comm/nccl/small_all_reduce.h"

namespace braid::comm {
namespace {

constexpr int kThreads = 256;
constexpr int kMostArrays = 80;  // a kernel's arguments are 4 KiB
constexpr unsigned kMostBlocks = 132;

/// Arrays behind each other, as windows have them: `first` is where one begins.
struct Arrays {
  const float* input[kMostArrays];
  float* output[kMostArrays];
  unsigned first[kMostArrays + 1];
  int count;
};

/// Where ranks have each other's arrays: `room` floats for each source in a half.
struct Windows {
  float* at[PeerWindow::kMostRanks];
  unsigned room;
  unsigned half;
  int ranks, rank;
};
static_assert(sizeof(Arrays) + sizeof(Windows) + sizeof(Signals) <= 4096);

__device__ int array_of(const Arrays& arrays, unsigned i) {
  int low = 0;
  for (int high = arrays.count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (arrays.first[middle] <= i ? low : high) = middle;
  }
  return low;
}

__device__ unsigned index() { return blockIdx.x * kThreads + threadIdx.x; }

__global__ void __launch_bounds__(kThreads)
    spread_kernel(const __grid_constant__ Arrays arrays, const __grid_constant__ Windows windows,
                  const __grid_constant__ Signals signals, bool announces) {
  const std::uint64_t number = *signals.finished + 1;
  const unsigned own = (number & 1) * windows.half + windows.rank * windows.room;
  for (unsigned i = arrays.first[0] + index(); i < arrays.first[arrays.count]; i += gridDim.x * kThreads) {
    const int a = array_of(arrays, i);
    const float value = arrays.input[a][i - arrays.first[a]];
    for (int r = 0; r < windows.ranks; ++r)
      if (r != windows.rank) windows.at[r][own + i] = value;
  }
  if (announces && is_last_block(signals.blocks)) announce(signals, number);
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ Arrays arrays, const __grid_constant__ Windows windows,
               const __grid_constant__ Signals signals, bool finishes) {
  const std::uint64_t number = *signals.finished + 1;
  wait_for_peers(signals, number);
  const float* const came = windows.at[windows.rank] + (number & 1) * windows.half;
  for (unsigned i = arrays.first[0] + index(); i < arrays.first[arrays.count]; i += gridDim.x * kThreads) {
    const int a = array_of(arrays, i);
    const unsigned at = i - arrays.first[a];
    const auto of = [&](int r) {
      return r == windows.rank ? arrays.input[a][at] : __ldcg(came + r * windows.room + i);
    };
    float sum = of(0);
    for (int r = 1; r < windows.ranks; ++r) sum += of(r);
    arrays.output[a][at] = sum;
  }
  if (finishes && is_last_block(signals.blocks)) *signals.finished = number;
}

/// Calls launch(arrays, last) with up to kMostArrays of them at a time.
template <class Launch>
void in_launches(std::span<const ReducePiece> pieces, const Launch& launch) {
  unsigned at = 0;
  std::size_t next = 0;
  do {
    Arrays arrays{};
    for (; next < pieces.size() && arrays.count < kMostArrays; ++next) {
      if (pieces[next].count == 0) continue;
      arrays.input[arrays.count] = static_cast<const float*>(pieces[next].input);
      arrays.output[arrays.count] = static_cast<float*>(pieces[next].output);
      arrays.first[arrays.count++] = at;
      at += static_cast<unsigned>(pieces[next].count);
    }
    arrays.first[arrays.count] = at;
    launch(arrays, next == pieces.size());
  } while (next < pieces.size());
}

unsigned blocks_for(const Arrays& arrays) {
  const unsigned elements = arrays.first[arrays.count] - arrays.first[0];
  return std::clamp((elements + kThreads * 4 - 1) / (kThreads * 4), 1U, kMostBlocks);
}

}  // namespace

SmallAllReduce::SmallAllReduce(std::unique_ptr<PeerWindow> window, const int* abort)
    : window_(std::move(window)), abort_(abort) {}

bool SmallAllReduce::fits(std::span<const ReducePiece> pieces) {
  std::int64_t elements = 0;
  for (const ReducePiece& piece : pieces) elements += piece.count;
  return elements * static_cast<std::int64_t>(sizeof(float)) <= kMostBytes;
}

void SmallAllReduce::run(std::span<const ReducePiece> pieces, StreamRef stream) {
  const auto on = static_cast<cudaStream_t>(stream.native);
  Windows windows{};
  windows.ranks = window_->ranks();
  windows.rank = window_->rank();
  windows.room = kMostBytes / sizeof(float);
  windows.half =
      static_cast<unsigned>(window_->half_bytes(windows.rank) / static_cast<std::int64_t>(sizeof(float)));
  for (int r = 0; r < windows.ranks; ++r) windows.at[r] = reinterpret_cast<float*>(window_->data(r));
  in_launches(pieces, [&](const Arrays& arrays, bool last) {
    spread_kernel<<<blocks_for(arrays), kThreads, 0, on>>>(arrays, windows, make_signals(*window_, 0, abort_),
                                                           last);
    BRAID_CUDA_CHECK(cudaGetLastError());
  });
  in_launches(pieces, [&](const Arrays& arrays, bool last) {
    sum_kernel<<<blocks_for(arrays), kThreads, 0, on>>>(arrays, windows, make_signals(*window_, 1, abort_),
                                                        last);
    BRAID_CUDA_CHECK(cudaGetLastError());
  });
}

}  // namespace braid::comm
