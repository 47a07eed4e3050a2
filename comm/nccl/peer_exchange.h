// Exchanges of pieces by the GPUs' own stores into each other's memory (peer_window.h): one kernel writes the
// peers' pieces, the last of its blocks tells every peer, and a second kernel waits for theirs and takes what
// came. Between GPUs of one host a few microseconds and the link's rate, where a message through NCCL needs
// packing, a launch of its own and a handshake.
#pragma once

#include <memory>

#include "comm/nccl/peer_window.h"
#include "comm/split_exchange.h"

namespace braid::comm {

/// `abort`: page-locked memory that the device reads; not 0 ends all waits. It outlives the exchange.
std::unique_ptr<PieceExchange> make_peer_exchange(std::unique_ptr<PeerWindow> window, PieceLayout layout,
                                                  const int* abort);

}  // namespace braid::comm
