// Who may do what at a process's HTTP address, and where the pages of a job's other processes are.
// docs/user/security.md and docs/user/status.md say so to users. Thread rule: pure functions; what they
// return is safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/http.h"
#include "comm/transport/security.h"
#include "launch/cluster_spec.h"
#include "watch/status.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// "Braid <Unix seconds> <HMAC-SHA256 of '<seconds> <target>', hexadecimal>": the Authorization header of a
/// request of somebody who knows the token.
std::string http_proof(const comm::JobToken& token, std::string_view target, std::int64_t unix_seconds);

/// Why a request for what acts is refused; null: none is, since only this host reaches `listen`, or the job
/// is strategy.insecure. Elsewhere a request proves the job's token, and where the job has none all are
/// refused. Proofs count for a minute around this host's time. Throws: as given_token().
std::function<std::string(const HttpRequest&)> page_access(const proto::Job& job, const std::string& listen);

/// The tasks with their HTTP addresses. BRAID_HTTP_PEERS ("worker:0=host:port,ps:0=host:port") says them;
/// else all listen on the port of `listen`, on the hosts of the cluster spec, each on a host of its own.
/// Empty where neither is so. Throws: InvalidArgument for a variable of another form.
std::vector<watch::PeerAddress> page_peers(const launch::ClusterSpec& cluster, const std::string& listen);

}  // namespace braid::worker
