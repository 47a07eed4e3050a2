// Sums of small arrays over the GPUs of one host in one step (peer_window.h): every rank stores its arrays in
// the memory of all others and adds up what came, in the order of ranks, so all have the same bits and a
// repeated sum has them again. Each rank receives ranks - 1 times the bytes, where a ring sends twice; below
// a megabyte the hops that a ring needs cost more. Thread rule: as Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/stream_ref.h"
#include "comm/communicator.h"
#include "comm/nccl/peer_window.h"

namespace braid::comm {

class SmallAllReduce {
 public:
  /// Of all arrays of a sum together.
  static constexpr std::int64_t kMostBytes = 1 << 20;
  /// Of a window for `ranks` ranks, each with room for what the others send.
  static std::int64_t window_bytes(int ranks) { return kMostBytes * ranks; }

  /// `abort`: page-locked memory that the device reads; not 0 ends all waits. It outlives this.
  SmallAllReduce(std::unique_ptr<PeerWindow> window, const int* abort);

  /// Whether the sums of these float32 arrays fit.
  static bool fits(std::span<const ReducePiece> pieces);
  /// Enqueues them, all on one stream. REQUIRES: fits(pieces).
  void run(std::span<const ReducePiece> pieces, StreamRef stream);

 private:
  std::unique_ptr<PeerWindow> window_;
  const int* const abort_;
};

}  // namespace braid::comm
