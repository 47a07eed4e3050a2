#include "worker/roles.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_file.h"
#include "comm/mpi/mpi_session.h"
#include "comm/nccl/nccl_communicator.h"
#include "engine/device/core_budget.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"
#include "ps/client/ps_client.h"
#include "ps/server/control_service.h"
#include "ps/server/ps_server.h"
#include "ps/server/server_core.h"
#include "ps/server/socket_files.h"
#include "worker/bootstrap.h"
#include "worker/checkpoint_evaluator.h"
#include "worker/device.h"
#include "worker/device_watch.h"
#include "worker/job/job.h"
#include "worker/job/unused_fields.h"
#include "worker/monitor.h"
#include "worker/op_libraries.h"
#include "worker/page_access.h"
#include "worker/progress.h"
#include "worker/run/job_report.h"
#include "worker/run/run_directory.h"
#include "worker/security.h"
#include "worker/stop_signal.h"
#include "worker/strategies/step_services.h"
#include "worker/trainer.h"

namespace braid::worker {
namespace {

constexpr std::chrono::seconds kTellTime{2};
constexpr std::chrono::seconds kReportTime{5};  // to ask all servers, and to tell them

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::string http_address(const proto::Job& job) {
  return env_string("BRAID_HTTP").value_or(job.metrics().listen());
}

/// Its page is there from the start, also while it waits for its peers.
MonitorOptions monitor_options(const proto::Job& job, const launch::ClusterSpec& cluster) {
  MonitorOptions options;
  options.task = task_name(cluster.task);
  options.role = cluster.task.type == launch::TaskType::Chief ? "worker" : job_name(cluster.task.type);
  options.job = job.name();
  options.listen = http_address(job);
  options.leads = cluster.is_leader();
  options.refuse = page_access(job, options.listen);
  return options;
}

/// Says where the process can be watched, and learns where its peers are.
void open_page(const proto::Job& job, const launch::ClusterSpec& cluster, Monitor& monitor) {
  if (!monitor.page()) return;
  log_info("metrics: http://{}/metrics", monitor.address());
  monitor.page()->set_peers(page_peers(cluster, http_address(job)));
}

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

/// Usable cores shared by the processes of this host.
int intra_op_threads(const proto::Job& job, const launch::ClusterSpec& cluster) {
  if (job.runtime().intra_op_threads() > 0) return static_cast<int>(job.runtime().intra_op_threads());
  return std::max(1, usable_cores() / std::max(1, cluster.local_world));
}

RuntimeOptions runtime_options(const proto::Job& job, const launch::ClusterSpec& cluster) {
  for (const std::string& setting : unused_device_fields(job, SettingsFor::Training))
    log_warning("{}", setting);
  RuntimeOptions options;
  options.device = open_device(job, cluster);
  options.device_graphs = job.runtime().graphs();
  options.device_check = job.runtime().check_kernels();
  options.intra_op_threads = intra_op_threads(job, cluster);
  return options;
}

/// Until all processes have found each other, or this one is asked to stop.
WaitContext start_wait(const proto::Job& job, const StopFlag& stop) {
  return WaitContext::with_timeout(to_ms(job.strategy().start_deadline_seconds()), stop.token());
}

/// The last line of a run. Result: its exit code.
template <class Result>
int report(const Result& result, const RoleOptions& options, comm::Communicator* communicator = nullptr) {
  if (!options.hooks) print_result(result.to_json(), result.exit, options.cluster, communicator);
  return result.exit;
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
  const auto lost = [&] { return server.job_end() == ps::JobEnd::Lost; };
  while (!(told && (server.core().all_gone() ||
                    (server.core().nobody_here() && Clock::now() >= *told + kLateComers)))) {
    if (const ErrorPtr refusal = server.core().refusal()) return refused(server, job, stop, *refusal);
    if ((stop.requested() || lost()) && !patience) {
      // What a worker's step and its checkpoint may take.
      patience = Clock::now() + deadline;
      if (stop.requested()) server.core().vote_to_stop();
    }
    // The leader leaves before it says that the servers are to end, and must be answered.
    const bool serves = server.core().serves_workers() || (!told && server.core().leader_left());
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

/// Those of `tasks` that are on the host of this process, where the cluster says where they are.
int on_this_host(const launch::ClusterSpec& cluster, const launch::ClusterSpec::Job& tasks) {
  const auto host_of = [](const std::string& address) { return address.substr(0, address.rfind(':')); };
  const launch::ClusterSpec::Job& own_job = cluster.job(cluster.task.type);
  const auto own = own_job.find(cluster.task.index);
  const std::string host = own == own_job.end() ? std::string() : host_of(own->second);
  return static_cast<int>(
      std::ranges::count_if(tasks, [&](const auto& task) { return host_of(task.second) == host; }));
}

/// The processes of this job that are busy on this host.
int processes_of_host(const launch::ClusterSpec& cluster) {
  const int workers = on_this_host(cluster, cluster.chief) + on_this_host(cluster, cluster.worker);
  return std::max(workers, cluster.local_world) + on_this_host(cluster, cluster.ps);
}

/// A fair part of this host's cores.
int table_threads(const launch::ClusterSpec& cluster) {
  return ps::auto_table_threads(
      usable_cores(), on_this_host(cluster, cluster.ps),
      on_this_host(cluster, cluster.chief) + on_this_host(cluster, cluster.worker) > 0);
}

int run_server(const proto::Job& job, launch::ClusterSpec cluster, const std::shared_ptr<StopFlag>& stop) {
  Monitor monitor(monitor_options(job, cluster));
  ps::PsServer::Options options;
  options.index = cluster.task.index;
  options.count = static_cast<int>(cluster.ps.size());
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

/// A wait for others has failed. Tells the servers of one that is lost, and the user how the job goes on.
void say_what_to_start_again(const Peers& peers, bool resumes) {
  const std::string how = resumes ? "with --resume" : "with --resume, if the job has a checkpoint.directory";
  if (!peers.servers) {
    if (peers.world > 1) log_error("the job cannot go on: start all its workers again {}", how);
    return;
  }
  const std::string lost = peers.servers->report_lost_server(WaitContext::with_timeout(kReportTime));
  if (lost.empty() && peers.communicator && peers.world > 1)
    log_error("the job cannot go on: start all its workers again {}; the servers wait for them", how);
  else if (lost.empty())
    log_error("start the workers that have ended again {}; the servers wait for them", how);
  else
    log_error("{} is lost, and a part of the job's state with it: start all workers and all servers again {}",
              lost, how);
}

/// The others wait for what this worker would have done in its first step.
void tell_of_early_stop(const Peers& peers) {
  if (!peers.servers) return;
  try {
    peers.servers->stop_before_start(WaitContext::with_timeout(kTellTime));
  } catch (const Error& error) {
    log_debug("the servers cannot be told: {}", error.message());
  }
}

/// As long as it lives, steps can be recorded over HTTP.
class TraceAttachment {
 public:
  TraceAttachment(Monitor& monitor, Trace* trace, bool records_always) : page_(monitor.page()) {
    if (page_) page_->trace().attach(trace, monitor.task(), records_always);
  }
  ~TraceAttachment() {
    if (page_) page_->trace().attach(nullptr, "", false);
  }
  TraceAttachment(const TraceAttachment&) = delete;
  TraceAttachment& operator=(const TraceAttachment&) = delete;

 private:
  ProcessPage* const page_;
};

int run_worker(const proto::Job& job, const RoleOptions& options, const std::shared_ptr<StopFlag>& stop) {
  const launch::ClusterSpec& cluster = options.cluster;
  Monitor monitor(monitor_options(job, cluster));
  open_page(job, cluster, monitor);
  RuntimeOptions its = runtime_options(job, cluster);
  const bool traces_always = traces_all_steps(job);
  its.trace = !job.metrics().trace_file().empty() || monitor.page();
  std::optional<Bootstrap> bootstrap;
  try {
    bootstrap.emplace(job, cluster, its.device.get(), start_wait(job, *stop));
  } catch (const Error& error) {
    if (!was_asked_to_stop(*stop, error)) throw;
    return report(stopped_before_steps(job, error), options);
  }
  Runtime runtime(its);
  if (Trace* trace = runtime.trace()) trace->set_recording(traces_always);
  std::optional<DeviceWatch> device_watch;
  const TraceAttachment attachment(monitor, runtime.trace(), traces_always);
  if (its.device) device_watch.emplace(job.metrics(), its.device, monitor, runtime.trace());
  auto services = std::make_shared<StepServices>();
  services->peer_deadline = to_ms(job.strategy().deadline_seconds());
  services->stop = stop;
  runtime.services().provide(std::move(services));
  TrainOptions train_options;
  train_options.data_dir = options.data_dir;
  train_options.start = options.start;
  train_options.hooks = options.hooks;
  train_options.role = fmt::format("{}-{}", job_name(cluster.task.type), cluster.task.index);
  const Peers& peers = bootstrap->peers();
  const TrainResult result = [&] {
    try {
      return train(job, train_options, peers, runtime, monitor, *stop);
    } catch (const Error& error) {
      if (ended_a_wait(error)) say_what_to_start_again(peers, options.start == RunStart::Resume);
      throw;
    }
  }();
  if (result.exit == kExitTerminated && result.steps == 0) tell_of_early_stop(peers);
  monitor.set_ready(false);
  if (device_watch) fmt::print("{}", device_watch->table());
  return report(result, options, peers.communicator.get());
}

int run_evaluator(const proto::Job& job, const RoleOptions& options, const std::shared_ptr<StopFlag>& stop) {
  launch::ClusterSpec cluster = options.cluster;
  Monitor monitor(monitor_options(job, cluster));
  open_page(job, cluster, monitor);
  // Under mpirun all ranks tell their addresses, and hear the job's token.
  auto mpi = hold_mpi(job, cluster);
  if (mpi) job_security(job, cluster, start_wait(job, *stop));
  if (has_communicator(job) || has_servers(job)) exchange_addresses(cluster, "", start_wait(job, *stop));
  mpi.reset();
  log_into_run_directory(job, "evaluator-0");
  Runtime runtime(runtime_options(job, cluster));
  const EvaluationResult result =
      evaluate_checkpoints(job, options.data_dir, options.start, runtime, monitor, *stop);
  monitor.set_ready(false);
  return report(result, options);
}

}  // namespace

int run_role(const proto::Job& job, const RoleOptions& options) {
  const StopSignal stop;  // before other threads
  return run_role(job, options, stop.flag());
}

int run_role(const proto::Job& job, const RoleOptions& options, const std::shared_ptr<StopFlag>& stop) {
  const launch::ClusterSpec& cluster = options.cluster;
  if (!cluster.single_machine()) {
    if (env_bool("BRAID_LOG_ROLE").value_or(true)) set_log_role(task_name(cluster.task));
    log_info("{}", cluster.describe());
  }
  if (!job.run_directory().empty()) keep_log_lines();
  check_cluster(job, cluster);
  progress_mode();  // a variable that says nothing known is refused before anything starts
  register_strategy_ops();
  const auto until_stopped = [&](const auto& run) {
    try {
      return run();
    } catch (const Cancelled& error) {
      if (!stop->requested()) throw;
      log_info("asked to stop: {}", error.message());
      return kExitTerminated;
    }
  };
  if (cluster.task.type == launch::TaskType::Ps)
    return until_stopped([&] { return run_server(job, cluster, stop); });
  load_op_libraries(job);
  proto::Job mine = job;
  if (cluster.task.type == launch::TaskType::Evaluator) {
    // The host's devices are the workers', unless it is told to take one.
    if (mine.runtime().device() == proto::Runtime::AUTO)
      mine.mutable_runtime()->set_device(proto::Runtime::CPU);
    return until_stopped([&] { return run_evaluator(mine, options, stop); });
  }
  CoreBudget::share_with(processes_of_host(cluster));
  resolve_device(mine, cluster);
  if (has_communicator(mine) && mine.strategy().backend() == proto::Strategy::NCCL)
    comm::log_nccl_algorithms();
  return run_worker(mine, options, stop);
}

}  // namespace braid::worker
