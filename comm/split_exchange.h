// An exchange of pieces (piece_exchange.h) whose two steps may be enqueued apart: what is sent in between
// does not wait until what came has been taken.
#pragma once

#include "comm/piece_exchange.h"

namespace braid::comm {

class SplitExchange : public PieceExchange {
 public:
  /// Writes what belongs to the peers. On one stream with the other exchanges, in their order.
  virtual void send(void* const* inputs, StreamRef stream) = 0;
  /// Waits for what the peers have written, and takes it and what stays on this rank. Behind send(), with the
  /// same inputs, and before the next one; on any stream.
  virtual void take(void* const* inputs, void* const* outputs, StreamRef stream) = 0;

  void run(void* const* inputs, void* const* outputs, StreamRef stream) final {
    send(inputs, stream);
    take(inputs, outputs, stream);
  }
};

}  // namespace braid::comm
