// The communicator over TCP for host tensors: ring reduce-scatter and all-gather with the reduction of one
// piece under way while the next arrives; direct exchange for small arrays, all_to_all and send/recv.
//
// Sums are made in the order that comm/sum_order.h says, so that a repeated call gives the same bits. One
// rank makes each sum and the others copy it.
//
// Every rank is connected with every other (connect_mesh.h), so the death of any is noticed at once; a silent
// one is named after its deadline, by all ranks alike, even by those that wait for it only through others.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/sum_order.h"
#include "comm/transport/transport.h"

namespace braid::comm {

struct RingOptions {
  int rank = 0;
  int size = 1;
  /// "host:port"; port 0 picks a free one.
  std::string listen = "127.0.0.1:0";
  /// The host under which the others reach this rank; empty: that of `listen`, or this machine's name for a
  /// wildcard.
  std::string advertise_host;
  /// Keys at the rendezvous begin with this. Unique for each communicator of a generation; the same on all
  /// ranks.
  std::string name = "ring";
  Security security{};
};

/// Returns when this rank is connected with all others.
/// Throws: DeadlineExceeded naming the ranks that did not come, Cancelled, Unavailable, InvalidArgument.
std::unique_ptr<Communicator> make_ring_communicator(const RingOptions& options, Rendezvous& rendezvous,
                                                     const WaitContext& wait);

}  // namespace braid::comm
