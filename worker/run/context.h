// What every part of a run is given: the job, who this process is, and what it computes and reports with.
// References, which all outlive the run. Thread rule: values.
#pragma once

#include <filesystem>
#include <string>

#include "base/checkpoint.h"

namespace braid {
class Runtime;
}
namespace braid::proto {
class Job;
}

namespace braid::worker {

class Monitor;
class StopFlag;
struct Peers;

struct RunHooks;
class ElasticWorld;
class Replicas;

struct TrainOptions {
  std::filesystem::path data_dir;
  RunStart start = RunStart::New;  // of its run, where there are checkpoints
  bool accepts_changes = false;  // of a run that goes on: of what decides its bits (worker/run/resumed_job.h)
  std::string role = "worker-0";    // in file names: "%r" of trace_file and steps_file
  const RunHooks* hooks = nullptr;  // outlives the run; null: none
  ElasticWorld* elastic = nullptr;  // outlives the run; null: the workers are those that there are
  Replicas* replicas = nullptr;     // of MIRRORED, outlives the run; null: the process is one worker
  int replica = 0;                  // among them

  /// The others of a process have no log, files and tables of their own.
  bool speaks() const { return replica == 0; }
};

struct RunContext {
  const proto::Job& job;
  const TrainOptions& options;
  const Peers& peers;
  Runtime& runtime;
  Monitor& monitor;
  const StopFlag& stop;

  bool resumes() const { return options.start == RunStart::Resume; }
};

}  // namespace braid::worker
