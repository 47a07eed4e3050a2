#include "worker/roles/roles.h"

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_file.h"
#include "comm/mpi/mpi_session.h"
#include "comm/nccl/nccl_communicator.h"
#include "engine/device/accelerator.h"
#include "engine/device/core_budget.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"
#include "ps/client/ps_client.h"
#include "worker/job/elastic.h"
#include "worker/job/job.h"
#include "worker/process/device.h"
#include "worker/process/op_libraries.h"
#include "worker/process/security.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/bootstrap.h"
#include "worker/roles/checkpoint_evaluator.h"
#include "worker/roles/replica_threads.h"
#include "worker/roles/role_setup.h"
#include "worker/roles/server_role.h"
#include "worker/roles/worker_part.h"
#include "worker/run/job_report.h"
#include "worker/run/run_directory.h"
#include "worker/run/trainer.h"
#include "worker/strategies/home_link.h"
#include "worker/watch/monitor.h"
#include "worker/watch/page_access.h"
#include "worker/watch/progress.h"

namespace braid::worker {
namespace {

constexpr std::chrono::seconds kTellTime{2};
constexpr std::chrono::seconds kReportTime{5};  // to ask all servers, and to tell them

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

/// Of a run that has ended in order; else tells who is to be started again.
template <class Train>
auto or_say_what_to_start_again(const Peers& peers, const RoleOptions& options, Train train) {
  try {
    return train();
  } catch (const Error& error) {
    if (ended_a_wait(error)) say_what_to_start_again(peers, options.start == RunStart::Resume);
    throw;
  }
}

/// Replicas on GPUs meet in NCCL, whatever the job says of processes.
void choose_backend(proto::Job& job, const launch::ClusterSpec& cluster) {
  if (job.runtime().device() == proto::Runtime::CUDA && replicas_of_process(job, cluster) * cluster.world > 1)
    job.mutable_strategy()->set_backend(proto::Strategy::NCCL);
}

/// A worker process: what all that trains in it shares.
class WorkerRole {
 public:
  WorkerRole(const proto::Job& job, const RoleOptions& options, std::shared_ptr<StopFlag> stop)
      : job_(job),
        options_(options),
        stop_(std::move(stop)),
        replicas_(replicas_of_process(job, options.cluster)),
        monitor_(monitor_options(job, options.cluster)) {
    open_page(job, options.cluster, monitor_);
    runtime_ = runtime_options(job, options.cluster, replicas_);
    for (int replica = 0; replica < replicas_; ++replica)
      devices_.push_back(open_device(job, options.cluster, replica));
    if (devices_.front()) devices_.front()->make_current();
  }

  int run() {
    try {
      bootstrap_.emplace(job_, options_.cluster, devices_.front().get(), start_wait(job_, *stop_), replicas_);
    } catch (const Error& error) {
      if (!was_asked_to_stop(*stop_, error)) throw;
      return report(stopped_before_steps(job_, error), options_);
    }
    return replicas_ > 1 ? train_all() : train_alone();
  }

 private:
  bool draws() { return !job_.metrics().trace_file().empty() || monitor_.page(); }

  int train_alone() {
    runtime_.trace = draws();
    runtime_.device = devices_.front();
    ElasticWorld* const elastic = bootstrap_->elastic();
    WorkerPart part(job_, runtime_, {monitor_, monitor_}, stop_, elastic);
    const bool traces_always = traces_all_steps(job_);
    if (Trace* trace = part.runtime().trace()) trace->set_recording(traces_always);
    const TraceAttachment attachment(monitor_, part.runtime().trace(), traces_always);
    TrainOptions its = train_options(options_);
    its.elastic = elastic;
    const Peers& peers = bootstrap_->peers();
    if (bootstrap_->homes())
      part.runtime().services().provide(std::make_shared<HomeLink>(HomeLink{bootstrap_->homes()}));
    const TrainResult result =
        or_say_what_to_start_again(peers, options_, [&] { return part.train(its, peers); });
    if (result.exit == kExitTerminated && result.steps == 0) tell_of_early_stop(peers);
    monitor_.set_ready(false);
    fmt::print("{}", part.device_table());
    return report(result, options_, elastic ? nullptr : peers.communicator.get());
  }

  int train_all() {
    const bool traces_always = traces_all_steps(job_);
    std::optional<Trace> trace;
    if (draws()) trace.emplace(Trace::kDefaultCapacity, traces_always);
    Trace* const drawn = trace ? &*trace : nullptr;
    const TraceAttachment attachment(monitor_, drawn, traces_always);
    const ReplicaSetting setting{*bootstrap_, devices_, runtime_, monitor_, drawn};
    const ReplicasResult result = or_say_what_to_start_again(
        bootstrap_->peers(), options_, [&] { return train_replicas(job_, options_, setting, stop_); });
    monitor_.set_ready(false);
    fmt::print("{}", result.device_table);
    return report(result.train, options_);
  }

  const proto::Job& job_;
  const RoleOptions& options_;
  const std::shared_ptr<StopFlag> stop_;
  const int replicas_;
  Monitor monitor_;
  RuntimeOptions runtime_;
  std::vector<std::shared_ptr<Accelerator>> devices_;
  std::optional<Bootstrap> bootstrap_;
};

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
  RuntimeOptions its = runtime_options(job, cluster);
  its.device = open_device(job, cluster);
  Runtime runtime(its);
  const EvaluationResult result =
      evaluate_checkpoints(job, options.data_dir, options.start, runtime, monitor, *stop);
  monitor.set_ready(false);
  return report(result, options);
}

/// Where workers take free places the world is all places, listed or not.
RoleOptions with_open_places(const proto::Job& job, RoleOptions options) {
  if (const auto places = open_places(job)) options.cluster.world = *places;
  return options;
}

}  // namespace

int run_role(const proto::Job& job, const RoleOptions& options) {
  const StopSignal stop;  // before other threads
  return run_role(job, options, stop.flag());
}

int run_role(const proto::Job& job, const RoleOptions& given, const std::shared_ptr<StopFlag>& stop) {
  if (!given.cluster.single_machine()) {
    if (env_bool("BRAID_LOG_ROLE").value_or(true)) set_log_role(task_name(given.cluster.task));
    log_info("{}", given.cluster.describe());
  }
  if (!job.run_directory().empty()) keep_log_lines();
  check_cluster(job, given.cluster);
  const RoleOptions options = with_open_places(job, given);
  const launch::ClusterSpec& cluster = options.cluster;
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
  if (mine.strategy().kind() == proto::Strategy::MIRRORED) choose_backend(mine, cluster);
  if (has_communicator(mine) && mine.strategy().backend() == proto::Strategy::NCCL)
    comm::log_nccl_algorithms();
  return WorkerRole(mine, options, stop).run();
}

}  // namespace braid::worker
