// What trains: a runtime on one device, what its steps need beside it, and who watches it. A worker process
// is one of these; of MIRRORED it has one a replica. Thread rule: made, used and destroyed by one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/exec/runtime.h"
#include "launch/cluster_spec.h"
#include "worker/roles/roles.h"
#include "worker/run/context.h"
#include "worker/run/result.h"
#include "worker/watch/device_watch.h"

namespace braid::worker {

class ElasticWorld;
class Monitor;

/// Of this process's runtimes, of which there are `replicas`, but for their device and their trace.
RuntimeOptions runtime_options(const proto::Job& job, const launch::ClusterSpec& cluster, int replicas = 1);

/// Who is told what it does.
struct PartMonitors {
  Monitor& steps;
  Monitor& device;  // the process's
};

class WorkerPart {
 public:
  /// All outlive it. `elastic`: null unless the job is.
  WorkerPart(const proto::Job& job, const RuntimeOptions& options, PartMonitors monitors,
             const std::shared_ptr<StopFlag>& stop, ElasticWorld* elastic);

  Runtime& runtime() { return runtime_; }
  /// Throws: as worker/run/trainer.h.
  TrainResult train(const TrainOptions& options, const Peers& peers);
  /// Of the device's streams, for people; empty: they were not sampled.
  std::string device_table() const { return device_watch_ ? device_watch_->table() : std::string(); }

 private:
  const proto::Job& job_;
  Monitor& monitor_;  // of its steps
  const std::shared_ptr<StopFlag> stop_;
  Runtime runtime_;
  std::optional<DeviceWatch> device_watch_;
};

/// Of the worker of this cluster, as what `options` say.
TrainOptions train_options(const RoleOptions& options);

}  // namespace braid::worker
