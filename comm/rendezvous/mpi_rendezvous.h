// The rendezvous of ranks that MPI started: rank 0 hosts the gRPC server on a free port, and MPI tells the
// others where.
#pragma once

#include <memory>

#include "comm/mpi/mpi_session.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"

namespace braid::comm {

/// A collective operation of all ranks, over which rank 0 gives the others a random token when `security` is
/// open. The object of rank 0 is the host, and outlives the others' use of
/// theirs. Throws: DeadlineExceeded, Cancelled, Unavailable; InvalidArgument without MPI.
std::unique_ptr<Rendezvous> make_mpi_rendezvous(MpiSession& session, RendezvousScope scope,
                                                const Security& security, const WaitContext& wait);

}  // namespace braid::comm
