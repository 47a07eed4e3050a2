#include "worker/roles/replica_threads.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/thread_log.h"
#include "engine/device/accelerator.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"
#include "worker/roles/bootstrap.h"
#include "worker/roles/role_setup.h"
#include "worker/roles/worker_part.h"
#include "worker/run/hooks.h"
#include "worker/run/replicas.h"
#include "worker/run/trainer.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

std::vector<std::string> names_of(const ReplicaSetting& setting) {
  std::vector<std::string> names;
  for (std::size_t r = 0; r < setting.devices.size(); ++r) {
    const auto& device = setting.devices[r];
    names.push_back(device ? fmt::format("/gpu:{}", device->options().ordinal) : fmt::format("/cpu:{}", r));
  }
  return names;
}

/// What a program that embeds the run brings to it; the first replica alone tells it what happens.
RunHooks without_calls(const RunHooks& hooks) {
  return {.train = hooks.train, .test = nullptr, .initial = hooks.initial, .first_step = hooks.first_step};
}

class ReplicaThreads {
 public:
  ReplicaThreads(const proto::Job& job, const RoleOptions& options, const ReplicaSetting& setting,
                 const std::shared_ptr<StopFlag>& stop)
      : job_(job), options_(options), setting_(setting), stop_(stop), replicas_(names_of(setting)) {
    if (options.hooks) quiet_hooks_ = without_calls(*options.hooks);
    tables_.resize(setting.devices.size());
  }

  ReplicasResult run() {
    {
      std::vector<std::jthread> threads;
      for (int replica = 1; replica < replicas_.size(); ++replica)
        threads.emplace_back([this, replica] {
          repeat_log_as("replica " + replicas_.name(replica));
          live(replica);
        });
      live(0);
    }
    replicas_.throw_failure();
    ReplicasResult result{std::move(result_), {}};
    for (const std::string& table : tables_) result.device_table += table;
    return result;
  }

 private:
  void live(int replica) noexcept {
    // Peers go behind the runtime, and both when all replicas have ended: others may read their memory.
    Peers peers;
    std::optional<Monitor> own_monitor;
    std::optional<WorkerPart> part;
    bool trains = false;
    try {
      const auto& device = setting_.devices[static_cast<std::size_t>(replica)];
      if (device) device->make_current();
      peers = setting_.peers.replica(replica, device.get(), start_wait(job_, *stop_));
      replicas_.joined(replica, peers.communicator);
      if (replica > 0) own_monitor.emplace(quiet_monitor());
      Monitor& monitor = own_monitor ? *own_monitor : setting_.monitor;
      part.emplace(job_, runtime_options_of(replica), PartMonitors{monitor, setting_.monitor}, stop_,
                   nullptr);
      replicas_.watch(replica, [&part] { return part->runtime().activity(); });
      trains = true;
      train(replica, *part, peers);
    } catch (...) {
      end(replica, std::current_exception(), trains);
    }
    replicas_.end_together();
    replicas_.freeze(replica);
  }

  void train(int replica, WorkerPart& part, const Peers& peers) {
    TrainOptions its = train_options(options_);
    its.replicas = &replicas_;
    its.replica = replica;
    if (replica > 0 && its.hooks) its.hooks = &quiet_hooks_;
    TrainResult result = part.train(its, peers);
    if (result.exit == kExitTerminated && result.steps == 0) replicas_.leave();
    tables_[static_cast<std::size_t>(replica)] = part.device_table();
    if (replica == 0) result_ = std::move(result);
  }

  void end(int replica, const std::exception_ptr& error, bool trains) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      if (!trains && was_asked_to_stop(*stop_, known)) {
        if (replica == 0) result_ = stopped_before_steps(job_, known);
        return replicas_.leave();
      }
    } catch (...) {
    }
    replicas_.fail(replica, error);
  }

  MonitorOptions quiet_monitor() const {
    MonitorOptions options = monitor_options(job_, options_.cluster);
    options.listen.clear();
    options.leads = false;
    return options;
  }

  RuntimeOptions runtime_options_of(int replica) const {
    RuntimeOptions options = setting_.runtime;
    options.device = setting_.devices[static_cast<std::size_t>(replica)];
    options.whole_trace = setting_.trace;
    options.trace_prefix = replicas_.name(replica) + "/";
    return options;
  }

  const proto::Job& job_;
  const RoleOptions& options_;
  const ReplicaSetting& setting_;
  const std::shared_ptr<StopFlag> stop_;
  Replicas replicas_;
  RunHooks quiet_hooks_;
  TrainResult result_;
  std::vector<std::string> tables_;  // each written by its replica
};

}  // namespace

ReplicasResult train_replicas(const proto::Job& job, const RoleOptions& options,
                              const ReplicaSetting& setting, const std::shared_ptr<StopFlag>& stop) {
  return ReplicaThreads(job, options, setting, stop).run();
}

}  // namespace braid::worker
