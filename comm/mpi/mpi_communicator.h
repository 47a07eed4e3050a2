// The communicator over MPI for host tensors, on a duplicate of MPI_COMM_WORLD or of its first ranks.
// Operations are MPI's
// non-blocking ones, tested with a back-off until the deadline (mpi_session.h says what happens after it).
//
// The order of sums is the library's: with the same library, settings, size and count it is the same each
// time, and it differs from the ring's. Max and Min of NaN are the library's too. Arguments that differ
// between ranks are not detected. A rank that is missing at the deadline is found by asking all others to
// answer, and named.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/mpi/mpi_session.h"

namespace braid::comm {

/// Of the first `size` ranks, whose collective operation it is. Throws: DeadlineExceeded, Cancelled,
/// Unavailable; InvalidArgument without MPI.
std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiSession> session, int size,
                                                    const WaitContext& wait);

}  // namespace braid::comm
