#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "comm/nccl/peer_mailbox.h"
#include "comm/nccl/peer_signals.cuh"

namespace braid::comm {
namespace {

constexpr std::int64_t kMostSmallBytes = 64 << 10;  // of a message that one block copies
constexpr int kSmallThreads = 1024;
constexpr int kMostSmallParts = 16;
// Flags of a pair are numbers of slots that were filled, and behind them, at the sender, that were emptied.
constexpr int kMostSlots = PeerWindow::kMostBlocks / 2;

struct Parts {
  const char* from[kMostSmallParts];
  char* to[kMostSmallParts];
  unsigned bytes[kMostSmallParts];
  int count;
};

/// One side of a slot. `here`: how many messages the other side says it has filled or emptied; `there`: where
/// it hears how many this side has; `done`: that number.
struct Side {
  const std::uint64_t* here;
  std::uint64_t* there;
  std::uint64_t* done;
  unsigned ahead;  // 1: the other side has to be one message ahead
};

__device__ void await(const Side& side, const int* abort) {
  constexpr unsigned kLooks = 4096;  // before the host is asked, across the bus
  const std::uint64_t wanted = *side.done + side.ahead;
  for (unsigned look = 1; load_acquire(side.here) < wanted; ++look) {
    __nanosleep(40);
    if (look % kLooks == 0 && *static_cast<const volatile int*>(abort) != 0) break;
  }
}

__device__ void say(const Side& side) {
  const std::uint64_t number = *side.done + 1;
  *side.done = number;
  __threadfence_system();
  store_release(side.there, number);
}

__global__ void await_kernel(Side side, const int* abort) { await(side, abort); }

__global__ void say_kernel(Side side) { say(side); }

__device__ void copy_part(const char* from, char* to, unsigned bytes) {
  const auto places = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  unsigned done = 0;
  if (places % sizeof(uint4) == 0) {
    const unsigned units = bytes / sizeof(uint4);
    for (unsigned i = threadIdx.x; i < units; i += blockDim.x)
      reinterpret_cast<uint4*>(to)[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
    done = units * sizeof(uint4);
  }
  for (unsigned i = done + threadIdx.x; i < bytes; i += blockDim.x) to[i] = __ldcg(from + i);
}

__global__ void __launch_bounds__(kSmallThreads)
    small_kernel(const __grid_constant__ Parts parts, Side side, const int* abort) {
  if (threadIdx.x == 0) await(side, abort);
  __syncthreads();
  for (int p = 0; p < parts.count; ++p) copy_part(parts.from[p], parts.to[p], parts.bytes[p]);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) say(side);
}

std::int64_t total_bytes(std::span<const MailPart> parts) {
  std::int64_t all = 0;
  for (const MailPart& part : parts) all += part.bytes;
  return all;
}

class PeerMailbox final : public Mailbox {
 public:
  PeerMailbox(std::unique_ptr<PeerWindow> window, std::vector<MailSlot> slots, const int* abort)
      : window_(std::move(window)), slots_(std::move(slots)), abort_(abort), counters_(slots_.size()) {
    std::map<int, std::int64_t> filled;              // bytes of windows, by rank
    std::map<std::pair<int, int>, int> of_the_pair;  // slots
    for (const MailSlot& slot : slots_) {
      places_.push_back({filled[slot.to], of_the_pair[{slot.from, slot.to}]++});
      filled[slot.to] += mail_room({&slot.bytes, 1});
    }
  }

  void send(int slot, std::span<const MailPart> parts, StreamRef stream) override {
    const MailSlot& to = checked(slot, &MailSlot::from, parts, "sends");
    const int number = place(slot).number;
    move(slot, to.to, parts, true,
         {window_->flag(window_->rank(), to.to) + kMostSlots + number,
          window_->flag(to.to, window_->rank()) + number, counters_.at(slot), 0},
         stream);
  }

  void recv(int slot, std::span<const MailPart> parts, StreamRef stream) override {
    const MailSlot& from = checked(slot, &MailSlot::to, parts, "receives");
    const int number = place(slot).number;
    move(slot, window_->rank(), parts, false,
         {window_->flag(window_->rank(), from.from) + number,
          window_->flag(from.from, window_->rank()) + kMostSlots + number, counters_.at(slot), 1},
         stream);
  }

 private:
  struct Place {
    std::int64_t offset;  // in the window of the rank that takes
    int number;           // among those of the pair
  };

  /// Numbers of this rank's messages, by slot.
  class Counters {
   public:
    explicit Counters(std::size_t slots) {
      const std::size_t bytes = std::max<std::size_t>(slots, 1) * sizeof(std::uint64_t);
      void* memory = nullptr;
      BRAID_CUDA_CHECK(cudaMalloc(&memory, bytes));
      data_ = static_cast<std::uint64_t*>(memory);
      const cuda::Stream stream = cuda::make_stream();
      BRAID_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream.get()));
      BRAID_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    }
    ~Counters() { cuda::log_failure(cudaFree(data_), "cudaFree"); }
    Counters(const Counters&) = delete;
    Counters& operator=(const Counters&) = delete;
    std::uint64_t* at(int slot) const { return data_ + slot; }

   private:
    std::uint64_t* data_ = nullptr;
  };

  const Place& place(int slot) const { return places_[static_cast<std::size_t>(slot)]; }

  const MailSlot& checked(int slot, int MailSlot::*end, std::span<const MailPart> parts,
                          const char* does) const {
    if (slot < 0 || slot >= std::ssize(slots_) ||
        slots_[static_cast<std::size_t>(slot)].*end != window_->rank())
      throw InvalidArgument("[nccl] rank " + std::to_string(window_->rank()) + " " + does +
                            " nothing in slot " + std::to_string(slot));
    const MailSlot& found = slots_[static_cast<std::size_t>(slot)];
    std::int64_t room = 0;
    for (const MailPart& part : parts) room += mail_room({&part.bytes, 1});
    if (room > found.bytes)
      throw InvalidArgument("[nccl] slot " + std::to_string(slot) + " has room for " +
                            std::to_string(found.bytes) + " bytes, a message needs " + std::to_string(room));
    return found;
  }

  void move(int slot, int taker, std::span<const MailPart> parts, bool sends, const Side& side,
            StreamRef stream) const {
    const auto on = static_cast<cudaStream_t>(stream.native);
    auto* at = reinterpret_cast<char*>(window_->data(taker)) + place(slot).offset;
    const bool is_small = total_bytes(parts) <= kMostSmallBytes && std::ssize(parts) <= kMostSmallParts;
    if (!is_small) await_kernel<<<1, 1, 0, on>>>(side, abort_);
    Parts small{};
    for (const MailPart& part : parts) {
      auto* const data = static_cast<char*>(part.data);
      const char* const from = sends ? data : at;
      char* const to = sends ? at : data;
      if (is_small) {
        small.from[small.count] = from;
        small.to[small.count] = to;
        small.bytes[small.count++] = static_cast<unsigned>(part.bytes);
      } else if (part.bytes > 0) {
        BRAID_CUDA_CHECK(
            cudaMemcpyAsync(to, from, static_cast<std::size_t>(part.bytes), cudaMemcpyDeviceToDevice, on));
      }
      at += mail_room({&part.bytes, 1});
    }
    if (is_small)
      small_kernel<<<1, kSmallThreads, 0, on>>>(small, side, abort_);
    else
      say_kernel<<<1, 1, 0, on>>>(side);
    BRAID_CUDA_CHECK(cudaGetLastError());
  }

  std::unique_ptr<PeerWindow> window_;
  const std::vector<MailSlot> slots_;
  std::vector<Place> places_;
  const int* const abort_;
  Counters counters_;
};

}  // namespace

std::vector<std::int64_t> mail_window_bytes(const std::vector<MailSlot>& slots, int ranks) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(ranks));
  for (const MailSlot& slot : slots) bytes[static_cast<std::size_t>(slot.to)] += mail_room({&slot.bytes, 1});
  for (std::int64_t& each : bytes) each = each / 2 + 1;  // a window has two halves behind each other
  return bytes;
}

std::string why_no_mailbox(const std::vector<MailSlot>& slots) {
  std::map<std::pair<int, int>, int> of_the_pair;
  for (const MailSlot& slot : slots)
    if (++of_the_pair[{slot.from, slot.to}] > kMostSlots)
      return "rank " + std::to_string(slot.to) + " has more than " + std::to_string(kMostSlots) +
             " slots for rank " + std::to_string(slot.from);
  return {};
}

std::unique_ptr<Mailbox> make_peer_mailbox(std::unique_ptr<PeerWindow> window, std::vector<MailSlot> slots,
                                           const int* abort) {
  return std::make_unique<PeerMailbox>(std::move(window), std::move(slots), abort);
}

}  // namespace braid::comm
