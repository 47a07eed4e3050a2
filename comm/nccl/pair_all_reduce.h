// Sums of arrays over two GPUs of one host: copy engines bring each rank's arrays into the other's memory
// (peer_window.h), and each adds what came to its own. What travels is what a ring of two sends, in one hop,
// and while it travels no multiprocessor is held: a ring's kernels take some of them from the products that a
// backward pass has meanwhile. Both ranks have the same bits, and a repeated sum has them again. Thread rule:
// as Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/stream_ref.h"
#include "comm/communicator.h"
#include "comm/nccl/peer_window.h"

namespace braid::comm {

class PairAllReduce {
 public:
  /// Of all arrays of a sum together. Smaller ones take less time by stores (small_all_reduce.h), and larger
  /// ones would need larger windows.
  static constexpr std::int64_t kLeastBytes = 1 << 19, kMostBytes = 1 << 24;
  static constexpr int kMostArrays = 32;
  /// Of a window, of a rank.
  static std::int64_t window_bytes() { return kMostBytes; }

  /// REQUIRES: a window of two ranks. `abort`: page-locked memory that the device reads; not 0 ends all
  /// waits. It outlives this.
  PairAllReduce(std::unique_ptr<PeerWindow> window, const int* abort);

  /// Whether the sums of these float32 arrays over so many ranks are made so.
  static bool fits(std::span<const ReducePiece> pieces, int ranks);
  /// Enqueues them. All ranks enqueue theirs in one order, on one stream. REQUIRES: fits(pieces, 2).
  void run(std::span<const ReducePiece> pieces, StreamRef stream);

 private:
  std::unique_ptr<PeerWindow> window_;
  const int* const abort_;
  unsigned turn_ = 0;  // which half of the windows is next
};

}  // namespace braid::comm
