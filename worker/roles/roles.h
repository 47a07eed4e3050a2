// From a cluster spec to a running process: finds the peers (rendezvous, communicator, servers), and runs the
// worker's or the server's part of a job. Every wait for others has the job's deadlines and names who is
// missing.
#pragma once

#include <filesystem>
#include <memory>

#include "base/checkpoint.h"
#include "launch/cluster_spec.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class StopFlag;
struct RunHooks;

struct RoleOptions {
  launch::ClusterSpec cluster;
  std::filesystem::path data_dir;
  RunStart start = RunStart::New;  // of its run, where there are checkpoints
  bool accepts_changes = false;    // as TrainOptions'
  /// Of a program that embeds the run, which is then told its result in place of standard output.
  const RunHooks* hooks = nullptr;
};

/// Runs to the end of the role; the exit code of a run that ended in order (0 or 143). Throws on every
/// failure. REQUIRES: called in main, before other threads exist.
int run_role(const proto::Job& job, const RoleOptions& options);
/// The same on any thread of a process that has its own way with signals: `stop` asks it to end.
int run_role(const proto::Job& job, const RoleOptions& options, const std::shared_ptr<StopFlag>& stop);

}  // namespace braid::worker
