// What the MPI files share: checked calls, and waiting for a request with a deadline. Includes mpi.h: for .cc
// files only.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <fmt/core.h>
#include <mpi.h>

#include <functional>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/wait_context.h"
#include "comm/mpi/mpi_session.h"

namespace braid::comm {

/// Throws: Unavailable with the call, the rank and MPI's text.
void check_mpi(int code, const char* call, int rank);
#define BRAID_MPI_CHECK(call, rank) ::braid::comm::check_mpi((call), #call, (rank))

/// Tests until the request is complete. `poll` is called with the lock held every now and then, and may
/// throw. Throws: DeadlineExceeded, Cancelled (the request is then still open), Unavailable, what `poll`
/// throws.
void wait_request(MpiSession& session, MPI_Request& request, const WaitContext& wait, const std::string& what,
                  const std::function<void()>& poll = {});

}  // namespace braid::comm
