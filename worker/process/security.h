// What a process of a job proves itself with to the others (docs/user/security.md): strategy.tls, or the
// job's token, from strategy.token_file, BRAID_TOKEN_FILE or BRAID_TOKEN, the first that is given. Under
// mpirun without addresses rank 0 draws a token and MPI tells it to the others.
#pragma once

#include <memory>
#include <string>

#include "base/wait_context.h"
#include "comm/transport/security.h"
#include "launch/cluster_spec.h"

namespace braid::proto {
class Job;
}
namespace braid::comm {
class MpiSession;
}

namespace braid::worker {

/// strategy.token_file, BRAID_TOKEN_FILE or BRAID_TOKEN; empty where none is given. Throws: InvalidArgument
/// for one that cannot be used.
comm::JobToken given_token(const proto::Job& job);

/// MPI, where this task asks it for anything; else null. MPI starts only once in a process: held from before
/// job_security() until exchange_addresses() is through. Throws: InvalidArgument without MPI, Unavailable.
std::shared_ptr<comm::MpiSession> hold_mpi(const proto::Job& job, const launch::ClusterSpec& cluster);

/// A collective operation of all tasks where addresses come over MPI. Throws: InvalidArgument for a token or
/// files that cannot be used, and for a job that would listen beyond this host's loopback with neither,
/// unless strategy.insecure is set.
comm::Security job_security(const proto::Job& job, const launch::ClusterSpec& cluster,
                            const WaitContext& wait);

/// Whether this task learns addresses of others over MPI.
bool asks_mpi(const proto::Job& job, const launch::ClusterSpec& cluster);

/// "localhost", "127.0.0.1", "[::1]".
bool is_loopback(const std::string& host);

}  // namespace braid::worker
