#include "worker/process/security.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/mpi/mpi_session.h"
#include "comm/rendezvous/mpi_rendezvous.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using launch::ClusterSpec;
using launch::Task;
using launch::TaskType;

comm::JobToken read_token(const std::string& file, const std::string& source) {
  errno = 0;
  std::ifstream in(file);
  std::ostringstream text;
  // Without errno the file is only empty, and is told to be too short.
  if (!in || (!(text << in.rdbuf()) && errno != 0))
    throw InvalidArgument(fmt::format("{} '{}' cannot be read: {}", source, file, std::strerror(errno)));
  return {text.str(), fmt::format("{} '{}'", source, file)};
}

}  // namespace

comm::JobToken given_token(const proto::Job& job) {
  if (const std::string& file = job.strategy().token_file(); !file.empty())
    return read_token(file, "strategy.token_file");
  if (const auto file = env_string("BRAID_TOKEN_FILE"); file && !file->empty())
    return read_token(*file, "BRAID_TOKEN_FILE");
  if (const auto text = env_string("BRAID_TOKEN"); text && !text->empty()) return {*text, "BRAID_TOKEN"};
  return {};
}

namespace {

/// The tasks of the job that listen for others of it.
std::vector<Task> listeners(const proto::Job& job, const ClusterSpec& cluster) {
  const auto& strategy = job.strategy();
  const bool ring = has_communicator(job) && strategy.backend() != proto::Strategy::MPI && cluster.world > 1;
  std::vector<Task> found;
  for (const Task& task : cluster.tasks()) {
    const bool ranked = task.type == TaskType::Chief || task.type == TaskType::Worker;
    if ((has_servers(job) && task.type == TaskType::Ps) || (ring && ranked)) found.push_back(task);
  }
  return found;
}

/// The first that others than this host can reach: "worker 0 at node1:2222".
std::optional<std::string> reachable_from_outside(const proto::Job& job, const ClusterSpec& cluster) {
  for (const Task& task : listeners(job, cluster)) {
    const std::string address = cluster.address(task).value_or("");
    const std::string host = address.substr(0, address.rfind(':'));
    const bool inside = address.empty() ? cluster.local_world >= cluster.world : is_loopback(host);
    if (!inside) return task_name(task) + (address.empty() ? "" : " at " + address);
  }
  return std::nullopt;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

bool asks_mpi(const proto::Job& job, const ClusterSpec& cluster) {
  if (cluster.addresses_known() || cluster.single_machine()) return false;
  if (has_servers(job)) return true;
  return has_communicator(job) && job.strategy().backend() != proto::Strategy::MPI &&
         cluster.address(cluster.leader()).value_or("").empty();
}

std::shared_ptr<comm::MpiSession> hold_mpi(const proto::Job& job, const ClusterSpec& cluster) {
  return asks_mpi(job, cluster) ? comm::MpiSession::start() : nullptr;
}

comm::Security job_security(const proto::Job& job, const ClusterSpec& cluster, const WaitContext& wait) {
  comm::Security security{tls_options(job), {}};
  if (job.strategy().kind() == proto::Strategy::LOCAL) return security;
  security.token = given_token(job);
  if (const auto session = hold_mpi(job, cluster)) security.token = comm::share_token(*session, wait);
  if (!security.open()) return security;
  const auto outside = reachable_from_outside(job, cluster);
  if (!outside) return security;
  if (!job.strategy().insecure())
    throw InvalidArgument(fmt::format(
        "the job has neither a token nor TLS, and {} can be reached from beyond this host: whoever reaches "
        "it could take the job over. Give all its processes the same BRAID_TOKEN (openssl rand -hex 32 "
        "makes one) or BRAID_TOKEN_FILE, or set strategy.tls; in a network that nobody else is in: "
        "strategy.insecure: true",
        *outside));
  log_warning("strategy.insecure: whoever reaches {} can take the job over", *outside);
  return security;
}

}  // namespace braid::worker
