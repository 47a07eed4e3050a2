#include "worker/roles/roles.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>

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
#include "worker/elastic/elastic_world.h"
#include "worker/job/job.h"
#include "worker/job/unused_fields.h"
#include "worker/process/device.h"
#include "worker/process/op_libraries.h"
#include "worker/process/security.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/bootstrap.h"
#include "worker/roles/checkpoint_evaluator.h"
#include "worker/roles/role_setup.h"
#include "worker/roles/server_role.h"
#include "worker/run/job_report.h"
#include "worker/run/run_directory.h"
#include "worker/run/trainer.h"
#include "worker/strategies/step_services.h"
#include "worker/watch/device_watch.h"
#include "worker/watch/monitor.h"
#include "worker/watch/page_access.h"
#include "worker/watch/progress.h"

namespace braid::worker {
namespace {

constexpr std::chrono::seconds kTellTime{2};
constexpr std::chrono::seconds kReportTime{5};  // to ask all servers, and to tell them

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

/// The last line of a run. Result: its exit code.
template <class Result>
int report(const Result& result, const RoleOptions& options, comm::Communicator* communicator = nullptr) {
  if (!options.hooks) print_result(result.to_json(), result.exit, options.cluster, communicator);
  return result.exit;
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
  if (bootstrap->elastic()) bootstrap->elastic()->vote_through(*services);
  runtime.services().provide(std::move(services));
  TrainOptions train_options;
  train_options.data_dir = options.data_dir;
  train_options.start = options.start;
  train_options.hooks = options.hooks;
  train_options.elastic = bootstrap->elastic();
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
  return report(result, options, bootstrap->elastic() ? nullptr : peers.communicator.get());
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
