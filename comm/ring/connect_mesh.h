// Connects every rank with every other: two sockets a pair, one for data, one for notices about failures.
// Each rank publishes its address at the rendezvous, connects to the ranks below it and accepts those above
// it. A full mesh costs 2 (size - 1) descriptors a rank, and buys that every rank learns of any other's death
// from its own socket.
#pragma once

#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "comm/ring/ring_communicator.h"
#include "comm/transport/socket.h"

namespace braid::comm {

struct PeerSockets {
  std::string name;  // "rank 2 (10.0.0.7:4001)"
  StreamSocket data;
  StreamSocket control;
};

/// By rank; the entry of this rank has a name only.
/// Throws: DeadlineExceeded naming the ranks that did not come, Cancelled, Unavailable, InvalidArgument.
std::vector<PeerSockets> connect_mesh(const RingOptions& options, Rendezvous& rendezvous,
                                      const WaitContext& wait);

}  // namespace braid::comm
