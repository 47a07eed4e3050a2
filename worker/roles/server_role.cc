#include "worker/roles/server_role.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/mpi/mpi_session.h"
#include "proto/job.pb.h"
#include "ps/server/control_service.h"
#include "ps/server/ps_server.h"
#include "ps/server/server_core.h"
#include "ps/server/socket_files.h"
#include "worker/job/job.h"
#include "worker/process/security.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/bootstrap.h"
#include "worker/roles/role_setup.h"
#include "worker/run/run_directory.h"

namespace braid::worker {
namespace {

/// What a server has counted, for its status.
void tell_server(const ps::ServerCounters& counters, int index, watch::Status& status) {
  using ps::Count;
  watch::Server& server = status.server.emplace();
  server.index = index;
  server.rows_made = counters.value(Count::RowsMade);
  server.pushes = counters.value(Count::PushesApplied) + counters.value(Count::PushesDuplicate) +
                  counters.value(Count::PushesDropped);
  server.pulls = counters.value(Count::Pulls);
  server.stale_pushes = counters.value(Count::PushesStale);
  server.rows_pushed = counters.value(Count::RowsPushed);
  server.rows_pulled = counters.value(Count::RowsPulled);
  server.rounds = counters.value(Count::Rounds);
  server.bytes_received = counters.value(Count::BytesReceived);
  server.bytes_sent = counters.value(Count::BytesSent);
  server.refused = counters.value(Count::RequestsRefused);
  server.parked_pulls = static_cast<int>(counters.parked_now());
}

/// How long a server of a job that cannot begin waits for workers that have not come yet.
constexpr std::chrono::seconds kRefusedComers{30};

/// The leader cannot begin: the server ends as the workers do, as soon as all of them have heard why.
int refused(ps::PsServer& server, const proto::Strategy& job, const StopFlag& stop, const ErrorRecord& why) {
  log_error("{}", why.message);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now(), deadline = begin + to_ms(job.start_deadline_seconds());
  // A worker that another server has told may never come here.
  const auto is_over = [&] {
    const auto now = Clock::now();
    return now >= deadline || (now >= begin + kRefusedComers && server.core().nobody_here());
  };
  while (!server.core().all_heard_refusal() && !stop.requested() && !is_over())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the last answer is on its way
  return exit_code_for(why.code);
}

/// How long a server that has been told of the end waits for workers that never came: they may be on their
/// way, and are to hear of it, too.
constexpr std::chrono::seconds kLateComers{5};

/// A server lives as long as its job: it ends when the leader has said so and nobody is left to serve. Asked
/// to stop it asks the workers to, and serves them until they have saved and left; who asks one process of a
/// job has most often asked all. Without any worker for strategy.server_idle_seconds it ends, too: they may
/// have ended without a word, as when their leader is killed. Result: the exit code; 143 whichever process
/// was asked, so that whoever starts the workers again starts their servers, too; 138 for a server whose job
/// has lost another server, and for one without workers.
int serve(ps::PsServer& server, const proto::Strategy& job, StopFlag& stop) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = to_ms(job.deadline_seconds() + job.start_deadline_seconds());
  const auto idle_limit = to_ms(job.server_idle_seconds());
  std::optional<Clock::time_point> patience, told;
  bool before_start = false;  // asked to stop, and the workers hear so in the place of any answer
  const auto lost = [&] { return server.job_end() == ps::JobEnd::Lost; };
  while (!(told && (server.core().all_gone() ||
                    (server.core().nobody_here() && Clock::now() >= *told + kLateComers)))) {
    if (const ErrorPtr refusal = server.core().refusal()) return refused(server, job, stop, *refusal);
    if ((stop.requested() || lost()) && !patience) {
      // What a worker's step and its checkpoint may take.
      patience = Clock::now() + deadline;
      before_start = stop.requested() && server.core().stop_before_start(
                                             "it was asked to stop before the job had its initial values");
      if (stop.requested() && !before_start) server.core().vote_to_stop();
    }
    // The leader leaves before it says that the servers are to end, and must be answered.
    const bool serves = before_start
                            ? !server.core().nobody_here()
                            : server.core().serves_workers() || (!told && server.core().leader_left());
    if (patience && (!serves || Clock::now() >= *patience)) break;
    if (!patience && !told && server.core().idle(Clock::now()) >= idle_limit) {
      log_error(
          "no worker for {:g} s (strategy.server_idle_seconds): the server ends; start all workers and "
          "servers of the job again with --resume",
          job.server_idle_seconds());
      return kExitPeerLost;
    }
    if (told) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    try {
      server.wait_shutdown(WaitContext::with_timeout(std::chrono::milliseconds(patience ? 20 : 200)));
      told = Clock::now();
      stop.set_ended();
    } catch (const DeadlineExceeded&) {
    }
  }
  if (lost()) return kExitPeerLost;
  return stop.requested() || server.job_end() == ps::JobEnd::Terminated ? kExitTerminated : kExitSuccess;
}

/// A fair part of this host's cores.
int table_threads(const launch::ClusterSpec& cluster) {
  return ps::auto_table_threads(
      usable_cores(), on_this_host(cluster, cluster.ps),
      on_this_host(cluster, cluster.chief) + on_this_host(cluster, cluster.worker) > 0);
}

}  // namespace

int run_server(const proto::Job& job, launch::ClusterSpec cluster, const std::shared_ptr<StopFlag>& stop) {
  Monitor monitor(monitor_options(job, cluster));
  ps::PsServer::Options options;
  options.index = cluster.task.index;
  // A partial cluster may list this server alone.
  options.count = cluster.partial ? 0 : static_cast<int>(cluster.ps.size());
  options.grpc_listen = listen_address(cluster);
  options.data_listen = options.grpc_listen.substr(0, options.grpc_listen.rfind(':')) + data_ports(job);
  ps::remove_dead_sockets();
  options.unix_socket = ps::new_socket_file(options.index);
  options.deadline = to_ms(job.strategy().deadline_seconds());
  const proto::ParameterServers& ps = job.strategy().ps();
  options.table_threads = ps.table_threads() > 0 ? ps.table_threads() : table_threads(cluster);
  options.shared_memory = ps.shared_memory();
  options.metrics = &monitor.registry();
  auto mpi = hold_mpi(job, cluster);
  options.security = job_security(job, cluster, start_wait(job, *stop));
  if (!job.checkpoint().directory().empty())
    options.checkpoints = std::filesystem::absolute(job.checkpoint().directory());
  const auto server = ps::PsServer::start(options);
  const std::string port = server->grpc_address().substr(server->grpc_address().rfind(':'));
  exchange_addresses(cluster, own_host(cluster) + port, start_wait(job, *stop));
  // Where the workers' sums are MPI's, it ends with all ranks.
  if (!has_communicator(job) || job.strategy().backend() != proto::Strategy::MPI)
    mpi.reset();
  else if (!mpi)
    mpi = comm::MpiSession::start();
  open_page(job, cluster, monitor);
  monitor.watch_part([counters = server->core().counters(), index = options.index](watch::Status& status) {
    tell_server(*counters, index, status);
  });
  log_into_run_directory(job, fmt::format("ps-{}", options.index));
  monitor.set_state("serving");
  const int code = serve(*server, job.strategy(), *stop);
  monitor.set_ready(false);
  server->stop(WaitContext::with_timeout(std::chrono::seconds(5)));
  const ps::ServerCounters& counts = *server->core().counters();
  log_info("parameter server {} ends: pushes applied {}, duplicate {}, dropped {}", options.index,
           counts.value(ps::Count::PushesApplied), counts.value(ps::Count::PushesDuplicate),
           counts.value(ps::Count::PushesDropped));
  return code;
}

}  // namespace braid::worker
