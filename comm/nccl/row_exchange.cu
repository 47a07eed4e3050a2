#include "comm/nccl/row_exchange.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/cuda/check.h"
#include "base/error.h"
#include "comm/nccl/peer_signals.cuh"

namespace braid::comm {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksEach = 4;              // that a multiprocessor has room for
constexpr int kAhead = 4;                   // rows' parts in flight
constexpr std::int64_t kStep = 16;          // bytes; places in windows are multiples of it
constexpr std::int64_t kBlockBytes = 4096;  // of a message: less is not worth a block

/// A move of rows. Named: row i is source row numbers[i], or via[numbers[i]].
struct Rows {
  const char* src;
  char* dst;
  const std::int32_t* numbers;
  const std::int32_t* via;  // or null
  unsigned first;           // steps of its message that are before it
  unsigned count;           // rows
  unsigned row_bytes;
  unsigned bound;
  bool whole_steps;  // rows, and where they are
};

/// What goes to or comes from a peer, or stays here.
struct Message {
  std::int64_t half;  // bytes to the other half of the window
  int begin, end;     // its moves
  unsigned steps;
};

template <int kMost>
struct Moves {
  static constexpr int kMostMoves = kMost;
  Message sent[PeerWindow::kMostRanks], received[PeerWindow::kMostRanks], own;
  Rows at[kMost];
};
using FewMoves = Moves<48>;
using ManyMoves = Moves<kMostRowMoves>;
static_assert(sizeof(FewMoves) + sizeof(Signals) <= 4096);
static_assert(sizeof(ManyMoves) + sizeof(Signals) <= 32764);

/// The source row of row i; negative: none.
template <bool kNamed>
__device__ std::int64_t source_of(const Rows& r, unsigned i) {
  const std::int32_t number = __ldg(r.numbers + i);
  if constexpr (!kNamed) return number < 0 ? -1 : static_cast<std::int64_t>(i);
  if (number < 0) return -1;
  const std::int32_t row = r.via ? __ldg(r.via + number) : number;
  return row >= 0 && static_cast<unsigned>(row) < r.bound ? row : -1;
}

/// A step of 4 byte parts, of rows that are not of whole steps.
template <bool kNamed>
__device__ void move_parts(const Rows& r, unsigned step, std::int64_t src_half, std::int64_t dst_half,
                           bool zeros) {
  const unsigned of_row = r.row_bytes / 4, parts = r.count * of_row;
  const auto* src = reinterpret_cast<const unsigned*>(r.src + src_half);
  auto* dst = reinterpret_cast<unsigned*>(r.dst + dst_half);
  for (unsigned part = step * 4; part < min(step * 4 + 4, parts); ++part) {
    const unsigned row = part / of_row;
    const std::int64_t from = source_of<kNamed>(r, row);
    if (from >= 0)
      dst[part] = __ldcg(src + from * of_row + (part - row * of_row));
    else if (zeros)
      dst[part] = 0;
  }
}

/// This block's part of a message: every gridDim-th piece of kThreads steps, as the rows that are used lie
/// together. `zeros`: for rows that are none.
template <bool kNamed>
__device__ void move(const Rows* moves, const Message& m, std::int64_t src_half, std::int64_t dst_half,
                     bool zeros) {
  const unsigned stride = gridDim.x * kThreads;
  for (unsigned first = blockIdx.x * kThreads + threadIdx.x; first < m.steps; first += kAhead * stride) {
    const uint4* from[kAhead];
    uint4* to[kAhead];
    uint4 values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const unsigned step = first + k * stride;
      from[k] = nullptr;
      to[k] = nullptr;
      if (step >= m.steps) continue;
      int low = m.begin;  // the move that has it
      for (int high = m.end; high - low > 1;) {
        const int middle = (low + high) / 2;
        (moves[middle].first <= step ? low : high) = middle;
      }
      const Rows& r = moves[low];
      const unsigned own = step - r.first;
      if (!r.whole_steps) {
        move_parts<kNamed>(r, own, src_half, dst_half, zeros);
        continue;
      }
      const unsigned of_row = r.row_bytes / unsigned{kStep}, row = own / of_row;
      const std::int64_t source = source_of<kNamed>(r, row);
      if (source >= 0)
        from[k] = reinterpret_cast<const uint4*>(r.src + src_half) + source * of_row + (own - row * of_row);
      if (source >= 0 || zeros) to[k] = reinterpret_cast<uint4*>(r.dst + dst_half) + own;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) values[k] = from[k] ? __ldcg(from[k]) : uint4{};
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (to[k]) *to[k] = values[k];
  }
}

/// To all peers: this block has written what belongs to exchange `number`. Called by all of its threads.
__device__ void announce_block(const Signals& signals, std::uint64_t number) {
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= signals.peers) return;
  __threadfence_system();
  store_release(signals.theirs[threadIdx.x] + blockIdx.x, number);
}

/// Until it has been announced, or nobody comes any more.
__device__ void wait_for(const std::uint64_t* flag, std::uint64_t number, const int* abort) {
  constexpr unsigned kLooks = 1024;  // before the host is asked, across the bus
  for (unsigned look = 1; load_acquire(flag) < number; ++look)
    if (look % kLooks == 0 && *static_cast<const volatile int*>(abort) != 0) return;
}

/// For this block of all peers, or for all of their blocks. Called by all threads.
template <bool kAllBlocks>
__device__ void wait_for_blocks(const Signals& signals, std::uint64_t number) {
  if constexpr (kAllBlocks) {
    for (int p = 0; p < signals.peers; ++p)
      for (unsigned b = threadIdx.x; b < gridDim.x; b += kThreads)
        wait_for(signals.own[p] + b, number, signals.abort);
  } else if (static_cast<int>(threadIdx.x) < signals.peers) {
    wait_for(signals.own[threadIdx.x] + blockIdx.x, number, signals.abort);
  }
  __syncthreads();
}

/// Block b writes its part of what its rank sends, tells block b of every peer, and takes its part of what
/// came. What rows name may be any block's. No block waits for another of its own rank.
template <bool kNamed, class All>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    exchange_rows_kernel(const __grid_constant__ All all, const __grid_constant__ Signals signals) {
  const std::uint64_t number = *signals.finished + 1;
  const auto odd = static_cast<std::int64_t>(number & 1);
  for (int p = 0; p < signals.peers; ++p) move<kNamed>(all.at, all.sent[p], 0, odd * all.sent[p].half, false);
  announce_block(signals, number);
  move<kNamed>(all.at, all.own, 0, 0, kNamed);
  wait_for_blocks<kNamed>(signals, number);
  for (int p = 0; p < signals.peers; ++p)
    move<kNamed>(all.at, all.received[p], odd * all.received[p].half, 0, kNamed);
  if (is_last_block(signals.blocks)) *signals.finished = number;
}

std::int64_t steps(std::int64_t bytes) { return (bytes + kStep - 1) / kStep; }
std::int64_t bytes_of(const RowMove& move) { return move.count * move.row_bytes; }

class RowExchange final : public PieceExchange {
 public:
  RowExchange(std::unique_ptr<PeerWindow> window, RowLayout layout, const int* abort)
      : window_(std::move(window)), layout_(std::move(layout)), abort_(abort) {
    // All ranks need the same number, which the windows say.
    const std::int64_t most = *std::ranges::max_element(layout_.window_bytes);
    blocks_ = static_cast<int>(
        std::clamp<std::int64_t>((most + kBlockBytes - 1) / kBlockBytes, 1, PeerWindow::kMostBlocks));
  }

  void run(void* const* inputs, void* const* outputs, StreamRef stream) override {
    const auto on = static_cast<cudaStream_t>(stream.native);
    if (layout_.own.size() + layout_.sent.size() + layout_.received.size() <= FewMoves::kMostMoves)
      launch<FewMoves>(inputs, outputs, on);
    else
      launch<ManyMoves>(inputs, outputs, on);
  }

 private:
  /// Adds moves of one message, with places in it that follow from their sizes alone.
  template <class All>
  class Adder {
   public:
    Adder(All& all, void* const* inputs, void* const* outputs)
        : all_(all), inputs_(inputs), outputs_(outputs) {}

    void add(const RowMove& move, char* window) {
      const auto numbers = [&](int input, std::int64_t first) {
        return static_cast<const std::int32_t*>(inputs_[input]) + first;
      };
      const char* const src =
          move.from < 0 ? window + move.window : static_cast<const char*>(inputs_[move.from]);
      char* const dst = move.to < 0 ? window + move.window
                                    : static_cast<char*>(outputs_[move.to]) + move.to_row * move.row_bytes;
      const std::uint64_t alignment = reinterpret_cast<std::uintptr_t>(src) |
                                      reinterpret_cast<std::uintptr_t>(dst) |
                                      static_cast<std::uint64_t>(move.row_bytes);
      all_.at[count_++] = {.src = src,
                           .dst = dst,
                           .numbers = numbers(move.numbers, move.first),
                           .via = move.via < 0 ? nullptr : numbers(move.via, move.via_first),
                           .first = static_cast<unsigned>(steps_),
                           .count = static_cast<unsigned>(move.count),
                           .row_bytes = static_cast<unsigned>(move.row_bytes),
                           .bound = static_cast<unsigned>(move.bound),
                           .whole_steps = alignment % kStep == 0};
      steps_ += steps(bytes_of(move));
    }
    /// What was added since the last one.
    Message message(std::int64_t half) {
      const Message made{half, begin_, count_, static_cast<unsigned>(steps_)};
      begin_ = count_;
      steps_ = 0;
      return made;
    }

   private:
    All& all_;
    void* const* inputs_;
    void* const* outputs_;
    int begin_ = 0, count_ = 0;
    std::int64_t steps_ = 0;
  };

  template <class All>
  void launch(void* const* inputs, void* const* outputs, cudaStream_t stream) const {
    All all{};
    Adder<All> adder(all, inputs, outputs);
    const int rank = window_->rank();
    for (int peer = 0, p = 0; peer < window_->ranks(); ++peer) {
      if (peer == rank) continue;
      for (const RowMove& move : layout_.sent)
        if (move.peer == peer) adder.add(move, reinterpret_cast<char*>(window_->data(peer)));
      all.sent[p] = adder.message(window_->half_bytes(peer));
      for (const RowMove& move : layout_.received)
        if (move.peer == peer) adder.add(move, reinterpret_cast<char*>(window_->data(rank)));
      all.received[p++] = adder.message(window_->half_bytes(rank));
    }
    for (const RowMove& move : layout_.own) adder.add(move, nullptr);
    all.own = adder.message(0);
    const Signals signals = make_signals(*window_, 0, abort_);
    if (layout_.named)
      exchange_rows_kernel<true><<<blocks_, kThreads, 0, stream>>>(all, signals);
    else
      exchange_rows_kernel<false><<<blocks_, kThreads, 0, stream>>>(all, signals);
    BRAID_CUDA_CHECK(cudaGetLastError());
  }

  std::unique_ptr<PeerWindow> window_;
  RowLayout layout_;
  const int* const abort_;
  int blocks_ = 1;
};

}  // namespace

bool fits_row_exchange(const RowLayout& layout) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 33;  // units of 4 bytes are counted in 32 bits
  for (const auto* moves : {&layout.own, &layout.sent, &layout.received})
    for (const RowMove& move : *moves)
      if (bytes_of(move) >= kMostBytes || move.bound >= std::int64_t{1} << 31) return false;
  return layout.own.size() + layout.sent.size() + layout.received.size() <= ManyMoves::kMostMoves;
}

std::string why_no_row_exchange() {
  int device = 0, processors = 0, each = 0;
  BRAID_CUDA_CHECK(cudaGetDevice(&device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  BRAID_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, exchange_rows_kernel<true, ManyMoves>,
                                                                 kThreads, 0));
  return processors * each >= PeerWindow::kMostBlocks
             ? std::string()
             : "a GPU has no room for all blocks of an exchange of rows at once";
}

std::unique_ptr<PieceExchange> make_row_exchange(std::unique_ptr<PeerWindow> window, RowLayout layout,
                                                 const int* abort) {
  return std::make_unique<RowExchange>(std::move(window), std::move(layout), abort);
}

}  // namespace braid::comm
