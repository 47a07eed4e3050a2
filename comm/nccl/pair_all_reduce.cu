#include <cuda_runtime.h>

#include <algorithm>

#include "base/cuda/check.h"
#include "comm/nccl/pair_all_reduce.h"
#include "comm/nccl/peer_signals.cuh"

namespace braid::comm {
namespace {

constexpr int kThreads = 512;
constexpr int kAhead = 4;  // loads in flight
// A kernel's blocks. Memory is nearly as fast with so many, and the rest of the device has room for others.
constexpr int kMostBlocks = 48;
constexpr std::int64_t kAlign = 16;

/// Where arrays lie in a window.
std::int64_t room_of(const ReducePiece& piece) {
  const std::int64_t bytes = piece.count * static_cast<std::int64_t>(sizeof(float));
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// Of a half of the windows: what this rank counts, what the peer says here, and what this rank says there.
struct Half {
  std::uint64_t *sent, *taken;
  const std::uint64_t *came, *room;
  std::uint64_t *tell_sent, *tell_taken;
  const int* abort;
};

__device__ void wait_until(const std::uint64_t* flag, std::uint64_t number, const int* abort) {
  constexpr unsigned kLooks = 1024;  // before the host is asked, across the bus
  for (unsigned look = 1; load_acquire(flag) < number; ++look)
    if (look % kLooks == 0 && *static_cast<const volatile int*>(abort) != 0) break;
}

/// Until the peer has taken what lay in the half before.
__global__ void room_kernel(Half half) { wait_until(half.room, *half.sent, half.abort); }

/// Says that the copies are there, and waits for the peer's.
__global__ void meet_kernel(Half half) {
  const std::uint64_t number = *half.sent + 1;
  *half.sent = number;
  __threadfence_system();
  store_release(half.tell_sent, number);
  wait_until(half.came, number, half.abort);
}

struct Arrays {
  const float* input[PairAllReduce::kMostArrays];
  const float* came[PairAllReduce::kMostArrays];
  float* output[PairAllReduce::kMostArrays];
  std::int64_t count[PairAllReduce::kMostArrays];
  int arrays;
};
static_assert(sizeof(Arrays) + sizeof(Half) + sizeof(unsigned*) <= 4096);

__device__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// output = input + came, of elements that are units.
template <class Unit>
__device__ void add(const float* input, const float* came, float* output, std::int64_t units) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < units;
       i += kAhead * step) {
    Unit own[kAhead], theirs[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (i + k * step < units) {
        own[k] = __ldcg(reinterpret_cast<const Unit*>(input) + i + k * step);
        theirs[k] = __ldcg(reinterpret_cast<const Unit*>(came) + i + k * step);
      }
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (i + k * step < units) reinterpret_cast<Unit*>(output)[i + k * step] = own[k] + theirs[k];
  }
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(const __grid_constant__ Arrays arrays, Half half, unsigned* blocks) {
  for (int a = 0; a < arrays.arrays; ++a) {
    const float *input = arrays.input[a], *came = arrays.came[a];
    float* output = arrays.output[a];
    const auto places = reinterpret_cast<std::uintptr_t>(input) | reinterpret_cast<std::uintptr_t>(output);
    const std::int64_t packed = places % sizeof(float4) == 0 ? arrays.count[a] / 4 * 4 : 0;
    add<float4>(input, came, output, packed / 4);
    add<float>(input + packed, came + packed, output + packed, arrays.count[a] - packed);
  }
  if (!is_last_block(blocks)) return;
  const std::uint64_t number = *half.taken + 1;
  *half.taken = number;
  store_release(half.tell_taken, number);
}

}  // namespace

PairAllReduce::PairAllReduce(std::unique_ptr<PeerWindow> window, const int* abort)
    : window_(std::move(window)), abort_(abort) {}

bool PairAllReduce::fits(std::span<const ReducePiece> pieces, int ranks) {
  std::int64_t bytes = 0;
  for (const ReducePiece& piece : pieces) bytes += room_of(piece);
  return ranks == 2 && std::ssize(pieces) <= kMostArrays && bytes >= kLeastBytes && bytes <= kMostBytes;
}

void PairAllReduce::run(std::span<const ReducePiece> pieces, StreamRef stream) {
  const auto on = static_cast<cudaStream_t>(stream.native);
  const int rank = window_->rank(), peer = 1 - rank;
  const unsigned turn = turn_++ % 2;
  // Numbers behind those that peer_window.h counts in, and flags of the two halves, twice.
  std::uint64_t* const counts = window_->finished() + 2;
  const Half half{counts + turn,
                  counts + 2 + turn,
                  window_->flag(rank, peer) + turn,
                  window_->flag(rank, peer) + 2 + turn,
                  window_->flag(peer, rank) + turn,
                  window_->flag(peer, rank) + 2 + turn,
                  abort_};
  std::byte* there = window_->data(peer) + turn * window_->half_bytes(peer);
  const std::byte* here = window_->data(rank) + turn * window_->half_bytes(rank);
  room_kernel<<<1, 1, 0, on>>>(half);
  Arrays arrays{};
  std::int64_t most = 0;
  for (const ReducePiece& piece : pieces) {
    if (piece.count == 0) continue;
    const auto bytes = static_cast<std::size_t>(piece.count) * sizeof(float);
    BRAID_CUDA_CHECK(cudaMemcpyAsync(there, piece.input, bytes, cudaMemcpyDeviceToDevice, on));
    arrays.input[arrays.arrays] = static_cast<const float*>(piece.input);
    arrays.came[arrays.arrays] = reinterpret_cast<const float*>(here);
    arrays.output[arrays.arrays] = static_cast<float*>(piece.output);
    arrays.count[arrays.arrays++] = piece.count;
    there += room_of(piece);
    here += room_of(piece);
    most = std::max(most, piece.count);
  }
  meet_kernel<<<1, 1, 0, on>>>(half);
  constexpr std::int64_t kOfBlock = kThreads * kAhead * 4;
  const auto blocks = static_cast<int>(std::clamp<std::int64_t>(most / kOfBlock, 1, kMostBlocks));
  add_kernel<<<blocks, kThreads, 0, on>>>(arrays, half, window_->blocks(0));
  BRAID_CUDA_CHECK(cudaGetLastError());
}

}  // namespace braid::comm
