#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/cuda/check.h"
#include "comm/nccl/peer_exchange.h"
#include "comm/nccl/peer_signals.cuh"

namespace braid::comm {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;        // loads in flight
constexpr int kMostCopies = 90;  // a kernel's arguments are 4 KiB
// Blocks of a kernel that writes peers' memory. So few fill the link. A multiprocessor that stores into it is
// slow in all else: with two blocks on each, every kernel beside an exchange ran until its end.
constexpr int kSendBlocks = 24;
// Blocks for each multiprocessor of a kernel that takes what came: the rest of the device is left to other
// streams.
constexpr int kBlocksEach = 2;

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

static_assert(sizeof(Copies) + sizeof(Signals) <= 4096);

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

/// Writes pieces into the peers' windows.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    put_kernel(const __grid_constant__ Copies copies, const __grid_constant__ Signals signals,
               bool announces) {
  const std::uint64_t number = *signals.finished + 1;
  if (copies.count > 0) copy<Unit>(copies, (number & 1) != 0, true);
  if (announces && is_last_block(signals.blocks)) announce(signals, number);
}

/// Takes what the peers wrote, once they have said so. The first `stays` blocks copy what is of this rank
/// itself, and need not wait.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    take_kernel(const __grid_constant__ Copies copies, const __grid_constant__ Signals signals,
                unsigned stays, bool finishes) {
  const std::uint64_t number = *signals.finished + 1;
  if (blockIdx.x >= stays) wait_for_peers(signals, number);
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

/// Units that a block takes, so that no more than `most` blocks are needed but one for each copy.
std::int64_t units_of_block(const Batch& batch, std::int64_t unit, std::int64_t most) {
  constexpr std::int64_t kRound = kThreads * kAhead;
  std::int64_t rounds = 0;
  for (const Batch::Item& item : batch.items) rounds += (item.bytes / unit + kRound - 1) / kRound;
  return kRound * std::max<std::int64_t>((rounds + most - 1) / most, 1);
}

/// The launches for all of a batch; the last is told so. launch(copies, blocks, those of the first `stays`
/// items, last).
template <class Launch>
void in_launches(const Batch& batch, std::int64_t unit, std::int64_t most_blocks, std::size_t stays,
                 const Launch& launch) {
  const std::int64_t each = units_of_block(batch, unit, most_blocks);
  std::size_t next = 0;
  do {
    Copies copies{};
    unsigned blocks = 0, staying = 0;
    for (; next < batch.items.size() && copies.count < kMostCopies; ++next) {
      const Batch::Item& item = batch.items[next];
      const auto units = static_cast<unsigned>(item.bytes / unit);
      copies.at[copies.count++] = {item.src, item.dst, item.half_bytes / unit, units, blocks};
      blocks += static_cast<unsigned>((units + each - 1) / each);
      if (next < stays) staying = blocks;
    }
    const bool last = next == batch.items.size();
    if (last && staying > 0) staying = std::min(staying, blocks - 1);  // a block waits, whatever came
    launch(copies, std::max(blocks, 1U), staying, last);
  } while (next < batch.items.size());
}

template <class F>
void with_unit(std::uint64_t alignment, F f) {
  if (alignment % 16 == 0) return f.template operator()<uint4>();
  if (alignment % 4 == 0) return f.template operator()<unsigned>();
  f.template operator()<unsigned char>();
}

class StoreExchange final : public SplitExchange {
 public:
  StoreExchange(std::unique_ptr<PeerWindow> window, PieceLayout layout, const int* abort)
      : window_(std::move(window)),
        layout_(std::move(layout)),
        abort_(abort),
        take_blocks_(blocks_at_most()) {}

  void send(void* const* inputs, StreamRef stream) override {
    const auto on = static_cast<cudaStream_t>(stream.native);
    Batch put;
    for (const PieceMove& move : layout_.sent)
      put.items.push_back({static_cast<const char*>(inputs[move.tensor]) + move.from,
                           window(move.peer) + move.to, window_->half_bytes(move.peer), move.bytes});
    with_unit(put.alignment(), [&]<class Unit>() {
      in_launches(
          put, sizeof(Unit), kSendBlocks, 0, [&](const Copies& copies, unsigned blocks, unsigned, bool last) {
            put_kernel<Unit><<<blocks, kThreads, 0, on>>>(copies, make_signals(*window_, 0, abort_), last);
            BRAID_CUDA_CHECK(cudaGetLastError());
          });
    });
  }

  void take(void* const* inputs, void* const* outputs, StreamRef stream) override {
    const auto on = static_cast<cudaStream_t>(stream.native);
    const auto output = [&](const PieceMove& move) {
      return static_cast<char*>(outputs[move.tensor]) + move.to;
    };
    Batch take;
    for (const PieceMove& move : layout_.own)
      take.items.push_back(
          {static_cast<const char*>(inputs[move.tensor]) + move.from, output(move), 0, move.bytes});
    for (const PieceMove& move : layout_.received)
      take.items.push_back({window(window_->rank()) + move.from, output(move),
                            window_->half_bytes(window_->rank()), move.bytes});
    with_unit(take.alignment(), [&]<class Unit>() {
      in_launches(take, sizeof(Unit), take_blocks_, layout_.own.size(),
                  [&](const Copies& copies, unsigned blocks, unsigned stays, bool last) {
                    take_kernel<Unit>
                        <<<blocks, kThreads, 0, on>>>(copies, make_signals(*window_, 1, abort_), stays, last);
                    BRAID_CUDA_CHECK(cudaGetLastError());
                  });
    });
  }

 private:
  char* window(int rank) const { return reinterpret_cast<char*>(window_->data(rank)); }

  static std::int64_t blocks_at_most() {
    int device = 0, processors = 0;
    BRAID_CUDA_CHECK(cudaGetDevice(&device));
    BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    return std::int64_t{kBlocksEach} * processors;
  }

  std::unique_ptr<PeerWindow> window_;
  PieceLayout layout_;
  const int* const abort_;
  const std::int64_t take_blocks_;
};

}  // namespace

std::unique_ptr<PieceExchange> make_peer_exchange(std::unique_ptr<PeerWindow> window, PieceLayout layout,
                                                  const int* abort) {
  return std::make_unique<StoreExchange>(std::move(window), std::move(layout), abort);
}

}  // namespace braid::comm
