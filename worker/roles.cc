#include "worker/roles.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/nccl/nccl_communicator.h"
#include "proto/job.pb.h"
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
#include "worker/progress.h"
#include "worker/stop_signal.h"
#include "worker/strategies/step_services.h"
#include "worker/trainer.h"

namespace braid::worker {
namespace {

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::string http_address(const proto::Job& job) {
  return env_string("BRAID_HTTP").value_or(job.metrics().listen());
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
int report(const Result& result) {
  fmt::print("result: {}\n", result.to_json());
  if (std::fflush(stdout) != 0) log_error("the result cannot be written: {}", std::strerror(errno));
  return result.exit;
}

/// The leader cannot begin: the server ends as the workers do, as soon as all of them have heard why.
int refused(ps::PsServer& server, const proto::Strategy& job, const StopFlag& stop, const ErrorRecord& why) {
  log_error("{}", why.message);
  const auto patience = std::chrono::steady_clock::now() + to_ms(job.start_deadline_seconds());
  while (!server.core().all_heard_refusal() && !stop.requested() &&
         std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the last answer is on its way
  return exit_code_for(why.code);
}

/// A server lives as long as its job: it ends when the leader has said so and nobody is left to serve. Asked
/// to stop it asks the workers to, and serves them until they have saved and left; who asks one process of a
/// job has most often asked all. Result: the exit code; 143 whichever process was asked, so that whoever
/// starts the workers again starts their servers, too.
int serve(ps::PsServer& server, const proto::Strategy& job, StopFlag& stop) {
  std::optional<std::chrono::steady_clock::time_point> patience;
  for (bool told = false; !(told && server.core().all_gone());) {
    if (const ErrorPtr refusal = server.core().refusal()) return refused(server, job, stop, *refusal);
    if (stop.requested() && !patience) {
      // What a worker's step and its checkpoint may take.
      patience =
          std::chrono::steady_clock::now() + to_ms(job.deadline_seconds() + job.start_deadline_seconds());
      server.core().vote_to_stop();
    }
    // The leader leaves before it says that the servers are to end, and must be answered.
    const bool serves = server.core().serves_workers() || (!told && server.core().leader_left());
    if (patience && (!serves || std::chrono::steady_clock::now() >= *patience)) break;
    if (told) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    try {
      server.wait_shutdown(WaitContext::with_timeout(std::chrono::milliseconds(patience ? 20 : 200)));
      told = true;
      stop.set_ended();
    } catch (const DeadlineExceeded&) {
    }
  }
  return stop.requested() || server.job_terminated() ? kExitTerminated : kExitSuccess;
}

int run_server(const proto::Job& job, launch::ClusterSpec cluster, const std::shared_ptr<StopFlag>& stop) {
  Monitor monitor(task_name(cluster.task), http_address(job));
  ps::PsServer::Options options;
  options.index = cluster.task.index;
  options.count = static_cast<int>(cluster.ps.size());
  options.grpc_listen = listen_address(cluster);
  options.data_listen = options.grpc_listen.substr(0, options.grpc_listen.rfind(':')) + ":0";
  ps::remove_dead_sockets();
  options.unix_socket = ps::new_socket_file(options.index);
  options.deadline = to_ms(job.strategy().deadline_seconds());
  options.metrics = &monitor.registry();
  options.tls = tls_options(job);
  const auto server = ps::PsServer::start(options);
  const std::string port = server->grpc_address().substr(server->grpc_address().rfind(':'));
  exchange_addresses(cluster, own_host(cluster) + port, start_wait(job, *stop));
  if (!monitor.address().empty()) log_info("metrics: http://{}/metrics", monitor.address());
  const int code = serve(*server, job.strategy(), *stop);
  monitor.set_ready(false);
  server->stop(WaitContext::with_timeout(std::chrono::seconds(5)));
  const ps::ServerCounters& counts = *server->core().counters();
  log_info("parameter server {} ends: pushes applied {}, duplicate {}, dropped {}", options.index,
           counts.value(ps::Count::PushesApplied), counts.value(ps::Count::PushesDuplicate),
           counts.value(ps::Count::PushesDropped));
  return code;
}

int run_worker(const proto::Job& job, const RoleOptions& options, const std::shared_ptr<StopFlag>& stop) {
  const launch::ClusterSpec& cluster = options.cluster;
  Monitor monitor(task_name(cluster.task), http_address(job));
  if (!monitor.address().empty()) log_info("metrics: http://{}/metrics", monitor.address());
  RuntimeOptions its = runtime_options(job, cluster);
  its.trace = !job.metrics().trace_file().empty();
  std::optional<Bootstrap> bootstrap;
  try {
    bootstrap.emplace(job, cluster, its.device.get(), start_wait(job, *stop));
  } catch (const Error& error) {
    if (!stop->requested() || !ended_a_wait(error)) throw;
    return report(stopped_before_steps(job, error));
  }
  Runtime runtime(its);
  std::optional<DeviceWatch> device_watch;
  if (its.device) device_watch.emplace(job.metrics(), its.device, monitor, runtime.trace());
  auto services = std::make_shared<StepServices>();
  services->peer_deadline = to_ms(job.strategy().deadline_seconds());
  services->stop = stop;
  runtime.services().provide(std::move(services));
  TrainOptions train_options;
  train_options.data_dir = options.data_dir;
  train_options.start = options.start;
  train_options.role = fmt::format("{}-{}", job_name(cluster.task.type), cluster.task.index);
  const TrainResult result = train(job, train_options, bootstrap->peers(), runtime, monitor, *stop);
  monitor.set_ready(false);
  if (device_watch) fmt::print("{}", device_watch->table());
  return report(result);
}

int run_evaluator(const proto::Job& job, const RoleOptions& options, const std::shared_ptr<StopFlag>& stop) {
  launch::ClusterSpec cluster = options.cluster;
  Monitor monitor(task_name(cluster.task), http_address(job));
  if (!monitor.address().empty()) log_info("metrics: http://{}/metrics", monitor.address());
  // Under mpirun all ranks tell their addresses.
  const bool ring = job.strategy().kind() == proto::Strategy::ALLREDUCE;
  if (ring || job.strategy().kind() == proto::Strategy::PS)
    exchange_addresses(cluster, "", start_wait(job, *stop));
  Runtime runtime(runtime_options(job, cluster));
  const EvaluationResult result =
      evaluate_checkpoints(job, options.data_dir, options.start, runtime, monitor, *stop);
  monitor.set_ready(false);
  return report(result);
}

}  // namespace

int run_role(const proto::Job& job, const RoleOptions& options) {
  const StopSignal stop;  // before other threads
  const launch::ClusterSpec& cluster = options.cluster;
  if (!cluster.single_machine()) {
    if (env_bool("BRAID_LOG_ROLE").value_or(true)) set_log_role(task_name(cluster.task));
    log_info("{}", cluster.describe());
  }
  check_cluster(job, cluster);
  progress_mode();  // a variable that says nothing known is refused before anything starts
  register_strategy_ops();
  const auto until_stopped = [&](const auto& run) {
    try {
      return run();
    } catch (const Cancelled& error) {
      if (!stop.flag()->requested()) throw;
      log_info("asked to stop: {}", error.message());
      return kExitTerminated;
    }
  };
  if (cluster.task.type == launch::TaskType::Ps)
    return until_stopped([&] { return run_server(job, cluster, stop.flag()); });
  proto::Job mine = job;
  if (cluster.task.type == launch::TaskType::Evaluator) {
    // The host's devices are the workers', unless it is told to take one.
    if (mine.runtime().device() == proto::Runtime::AUTO)
      mine.mutable_runtime()->set_device(proto::Runtime::CPU);
    return until_stopped([&] { return run_evaluator(mine, options, stop.flag()); });
  }
  resolve_device(mine, cluster);
  if (mine.strategy().kind() == proto::Strategy::ALLREDUCE &&
      mine.strategy().backend() == proto::Strategy::NCCL)
    comm::log_nccl_algorithms();
  return run_worker(mine, options, stop.flag());
}

}  // namespace braid::worker
