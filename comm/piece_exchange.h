// An exchange of pieces of tensors among the ranks of a communicator whose sizes never change, prepared once
// and run in every step: each rank writes its pieces where the other one takes them from, in one go and
// without packing messages first. Backends that have nothing better than all_to_all do without
// (Communicator::open_exchange).
//
// A rank takes what others send it from its window: window_bytes() of memory, whose places the layout names.
#pragma once

#include <cstdint>
#include <vector>

#include "base/stream_ref.h"

namespace braid::comm {

/// `bytes` from one place to another.
struct PieceMove {
  int tensor = 0;  // the input that it comes from, or the output that it goes to
  int peer = 0;    // of what is sent: to whom
  std::int64_t from = 0, to = 0;
  std::int64_t bytes = 0;
};

struct PieceLayout {
  std::vector<PieceMove> own;              // from input `tensor` to output `tensor`
  std::vector<PieceMove> sent;             // from input `tensor` to the window of `peer`
  std::vector<PieceMove> received;         // from this rank's window to output `tensor`
  std::vector<std::int64_t> window_bytes;  // of each rank
};

class PieceExchange {
 public:
  virtual ~PieceExchange() = default;
  /// Enqueues one exchange. `inputs` and `outputs` are read during the call. All ranks run their exchanges in
  /// one order, and one exchange on one stream. A rank that does not come in time breaks the communicator,
  /// which ends the wait; outputs are undefined then.
  virtual void run(void* const* inputs, void* const* outputs, StreamRef stream) = 0;
};

}  // namespace braid::comm
