// The rendezvous of ranks that MPI started: rank 0 hosts the gRPC server on a free port, and MPI tells the
// others where.
#pragma once

#include <memory>

#include "comm/mpi/mpi_session.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"

namespace braid::comm {

/// A random token that rank 0 draws and MPI tells the others. A collective operation of all ranks. Throws:
/// DeadlineExceeded, Cancelled, Unavailable.
JobToken share_token(MpiSession& session, const WaitContext& wait);

/// A collective operation of all ranks. When `security` is open, rank 0 gives the others a random token over
/// MPI. The object of rank 0 is the host, and outlives the others' use of theirs. Throws: DeadlineExceeded,
/// Cancelled, Unavailable; InvalidArgument without MPI.
std::unique_ptr<Rendezvous> make_mpi_rendezvous(MpiSession& session, RendezvousScope scope,
                                                const Security& security, const WaitContext& wait);

}  // namespace braid::comm
