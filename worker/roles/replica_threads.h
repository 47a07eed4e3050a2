// The replicas of MIRRORED in this process: a thread each, which has a device, streams and memory, and issues
// its steps; the first is the calling thread's. Thread rule: called by one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/exec/runtime.h"
#include "worker/roles/roles.h"
#include "worker/run/result.h"

namespace braid {
class Accelerator;
class Trace;
}  // namespace braid

namespace braid::worker {

class Bootstrap;
class Monitor;

struct ReplicaSetting {
  const Bootstrap& peers;
  std::vector<std::shared_ptr<Accelerator>> devices;  // of each replica; null: it computes on the CPU
  RuntimeOptions runtime;  // of each, but for its device and its place in the trace
  Monitor& monitor;        // of the process
  Trace* trace = nullptr;  // likewise; null: none
};

struct ReplicasResult {
  TrainResult train;         // the first one's, who speaks for all
  std::string device_table;  // of all devices' streams
};

/// Throws: what the first replica to fail throws, with its name.
ReplicasResult train_replicas(const proto::Job& job, const RoleOptions& options,
                              const ReplicaSetting& setting, const std::shared_ptr<StopFlag>& stop);

}  // namespace braid::worker
