// How kernels of ranks that write each other's memory (peer_window.h) tell each other how far they are. An
// exchange has two kernels: one that writes and announces, one that waits and takes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "comm/nccl/peer_window.h"

namespace braid::comm {

/// How the kernels of all ranks find each other.
struct Signals {
  std::uint64_t* finished;                           // exchanges of this rank
  unsigned* blocks;                                  // of this kernel, that are done
  const int* abort;                                  // not 0: nobody comes any more
  const std::uint64_t* own[PeerWindow::kMostRanks];  // what peers say here
  std::uint64_t* theirs[PeerWindow::kMostRanks];     // what this rank says there
  int peers;
};
__device__ inline std::uint64_t load_acquire(const std::uint64_t* flag) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

__device__ inline void store_release(std::uint64_t* flag, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

/// Whether this is the kernel's last block, whose thread 0 may now speak for all of them.
__device__ inline bool is_last_block(unsigned* blocks) {
  __syncthreads();
  if (threadIdx.x != 0) return false;
  __threadfence_system();
  if (atomicAdd(blocks, 1U) != gridDim.x - 1) return false;
  *blocks = 0;
  __threadfence_system();
  return true;
}

/// To all peers: this rank has written what belongs to exchange `number`.
__device__ inline void announce(const Signals& signals, std::uint64_t number) {
  for (int p = 0; p < signals.peers; ++p) store_release(signals.theirs[p], number);
}

/// Until all peers have announced `number`, or nobody comes any more. Called by all threads of a block.
__device__ inline void wait_for_peers(const Signals& signals, std::uint64_t number) {
  if (static_cast<int>(threadIdx.x) < signals.peers) {
    constexpr unsigned kLooks = 1024;  // before the host is asked, across the bus
    for (unsigned look = 1; load_acquire(signals.own[threadIdx.x]) < number; ++look)
      if (look % kLooks == 0 && *static_cast<const volatile int*>(signals.abort) != 0) break;
  }
  __syncthreads();
}

/// For one of the two kernels.
inline Signals make_signals(const PeerWindow& window, int kernel, const int* abort) {
  Signals signals{};
  signals.finished = window.finished();
  signals.blocks = window.blocks(kernel);
  signals.abort = abort;
  for (int r = 0; r < window.ranks(); ++r) {
    if (r == window.rank()) continue;
    signals.own[signals.peers] = window.flag(window.rank(), r);
    signals.theirs[signals.peers++] = window.flag(r, window.rank());
  }
  return signals;
}

}  // namespace braid::comm
