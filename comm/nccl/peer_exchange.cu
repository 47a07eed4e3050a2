#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/cuda/check.h"
#include "comm/nccl/peer_exchange.h"

namespace braid::comm {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;        // loads in flight
constexpr int kMostCopies = 90;  // a kernel's arguments are 4 KiB

struct Copy {
  const char* src;
  char* dst;
  std::int64_t half;  // units to the other half, of the side that is a window
  unsigned units;
  unsigned first_block;
};

struct Copies {
  Copy at[kMostCopies];
  int count;
};

/// How the kernels of all ranks find each other.
struct Signals {
  std::uint64_t* finished;                           // exchanges of this rank
  unsigned* blocks;                                  // of this kernel, that are done
  const int* abort;                                  // not 0: nobody comes any more
  const std::uint64_t* own[PeerWindow::kMostRanks];  // what peers say here
  std::uint64_t* theirs[PeerWindow::kMostRanks];     // what this rank says there
  int peers;
};
static_assert(sizeof(Copies) + sizeof(Signals) <= 4096);

__device__ std::uint64_t load_acquire(const std::uint64_t* flag) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

__device__ void store_release(std::uint64_t* flag, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

/// Each copy has a range of blocks to itself. `to_window`: which side of it has halves, unless Copy::half is
/// 0.
template <class Unit>
__device__ void copy(const Copies& copies, bool odd, bool to_window) {
  int low = 0;
  for (int high = copies.count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (copies.at[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  const Copy& c = copies.at[low];
  const unsigned end_block = low + 1 < copies.count ? copies.at[low + 1].first_block : gridDim.x;
  const std::int64_t half = odd ? c.half : 0;
  const auto* src = reinterpret_cast<const Unit*>(c.src) + (to_window ? 0 : half);
  auto* dst = reinterpret_cast<Unit*>(c.dst) + (to_window ? half : 0);
  const unsigned step = (end_block - c.first_block) * kThreads;
  for (unsigned i = (blockIdx.x - c.first_block) * kThreads + threadIdx.x; i < c.units; i += kAhead * step) {
    Unit values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (i + k * step < c.units) values[k] = __ldcg(src + i + k * step);
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (i + k * step < c.units) dst[i + k * step] = values[k];
  }
}

/// Whether this is the kernel's last block, whose thread 0 may now speak for all of them.
__device__ bool is_last_block(unsigned* blocks) {
  __syncthreads();
  if (threadIdx.x != 0) return false;
  __threadfence_system();
  if (atomicAdd(blocks, 1U) != gridDim.x - 1) return false;
  *blocks = 0;
  __threadfence_system();
  return true;
}

/// Writes pieces into this rank's outputs and the peers' windows.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    put_kernel(const __grid_constant__ Copies copies, const __grid_constant__ Signals signals,
               bool announces) {
  const std::uint64_t number = *signals.finished + 1;
  if (copies.count > 0) copy<Unit>(copies, (number & 1) != 0, true);
  if (!announces || !is_last_block(signals.blocks)) return;
  for (int p = 0; p < signals.peers; ++p) store_release(signals.theirs[p], number);
}

/// Takes what the peers wrote, once they have said so.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    take_kernel(const __grid_constant__ Copies copies, const __grid_constant__ Signals signals,
                bool finishes) {
  const std::uint64_t number = *signals.finished + 1;
  if (threadIdx.x < signals.peers) {
    constexpr unsigned kLooks = 1024;  // before the host is asked, across the bus
    for (unsigned look = 1; load_acquire(signals.own[threadIdx.x]) < number; ++look)
      if (look % kLooks == 0 && *static_cast<const volatile int*>(signals.abort) != 0) break;
  }
  __syncthreads();
  if (copies.count > 0) copy<Unit>(copies, (number & 1) != 0, false);
  if (finishes && is_last_block(signals.blocks)) *signals.finished = number;
}

/// Pieces of one kernel, whose places are converted to units when they are launched.
struct Batch {
  struct Item {
    const char* src;
    char* dst;
    std::int64_t half_bytes, bytes;
  };
  std::vector<Item> items;

  std::uint64_t alignment() const {
    std::uint64_t all = 16;
    for (const Item& item : items)
      all |= reinterpret_cast<std::uintptr_t>(item.src) | reinterpret_cast<std::uintptr_t>(item.dst) |
             static_cast<std::uint64_t>(item.half_bytes | item.bytes);
    return all;
  }
};

/// The launches for all of a batch; the last is told so.
template <class Launch>
void in_launches(const Batch& batch, std::int64_t unit, const Launch& launch) {
  std::size_t next = 0;
  do {
    Copies copies{};
    unsigned blocks = 0;
    for (; next < batch.items.size() && copies.count < kMostCopies; ++next) {
      const Batch::Item& item = batch.items[next];
      const auto units = static_cast<unsigned>(item.bytes / unit);
      copies.at[copies.count++] = {item.src, item.dst, item.half_bytes / unit, units, blocks};
      blocks += (units + kThreads * kAhead - 1) / (kThreads * kAhead);
    }
    launch(copies, std::max(blocks, 1U), next == batch.items.size());
  } while (next < batch.items.size());
}

template <class F>
void with_unit(std::uint64_t alignment, F f) {
  if (alignment % 16 == 0) return f.template operator()<uint4>();
  if (alignment % 4 == 0) return f.template operator()<unsigned>();
  f.template operator()<unsigned char>();
}

class StoreExchange final : public PieceExchange {
 public:
  StoreExchange(std::unique_ptr<PeerWindow> window, PieceLayout layout, const int* abort)
      : window_(std::move(window)), layout_(std::move(layout)) {
    signals_.finished = window_->finished();
    signals_.abort = abort;
    for (int r = 0; r < window_->ranks(); ++r) {
      if (r == window_->rank()) continue;
      signals_.own[signals_.peers] = window_->flag(window_->rank(), r);
      signals_.theirs[signals_.peers++] = window_->flag(r, window_->rank());
    }
  }

  void run(void* const* inputs, void* const* outputs, StreamRef stream) override {
    const auto on = static_cast<cudaStream_t>(stream.native);
    const auto input = [&](const PieceMove& move) { return static_cast<const char*>(inputs[move.tensor]); };
    const auto output = [&](const PieceMove& move) { return static_cast<char*>(outputs[move.tensor]); };
    const auto window = [&](int rank) { return reinterpret_cast<char*>(window_->data(rank)); };
    Batch put, take;
    // What crosses the link first.
    for (const PieceMove& move : layout_.sent)
      put.items.push_back(
          {input(move) + move.from, window(move.peer) + move.to, window_->half_bytes(move.peer), move.bytes});
    for (const PieceMove& move : layout_.own)
      put.items.push_back({input(move) + move.from, output(move) + move.to, 0, move.bytes});
    for (const PieceMove& move : layout_.received)
      take.items.push_back({window(window_->rank()) + move.from, output(move) + move.to,
                            window_->half_bytes(window_->rank()), move.bytes});
    with_unit(put.alignment(), [&]<class Unit>() {
      in_launches(put, sizeof(Unit), [&](const Copies& copies, unsigned blocks, bool last) {
        put_kernel<Unit><<<blocks, kThreads, 0, on>>>(copies, signals_of(0), last);
        BRAID_CUDA_CHECK(cudaGetLastError());
      });
    });
    with_unit(take.alignment(), [&]<class Unit>() {
      in_launches(take, sizeof(Unit), [&](const Copies& copies, unsigned blocks, bool last) {
        take_kernel<Unit><<<blocks, kThreads, 0, on>>>(copies, signals_of(1), last);
        BRAID_CUDA_CHECK(cudaGetLastError());
      });
    });
  }

 private:
  /// For one of the two kernels.
  Signals signals_of(int kernel) const {
    Signals signals = signals_;
    signals.blocks = window_->blocks(kernel);
    return signals;
  }

  std::unique_ptr<PeerWindow> window_;
  PieceLayout layout_;
  Signals signals_{};
};

}  // namespace

std::unique_ptr<PieceExchange> make_peer_exchange(std::unique_ptr<PeerWindow> window, PieceLayout layout,
                                                  const int* abort) {
  return std::make_unique<StoreExchange>(std::move(window), std::move(layout), abort);
}

}  // namespace braid::comm
