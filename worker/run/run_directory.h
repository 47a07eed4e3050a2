// The directory of a run (run_directory of the job, "runs/NAME"), which holds all that the run leaves:
//
//   job.pbtxt         the job with its defaults, from the first step on: there is a run here
//   metrics.jsonl     a line a step and an evaluation      (metrics.steps_file)
//   result.json       what the "result:" line says, once the run has ended in order
//   checkpoints/      trace/ROLE.json      tensorboard/    (other fields' defaults)
//   log/ROLE.log      of every process, run after run
//
// A run of its own never begins where there is one: its leader is refused before anything is written. Only
// one leader at a time has a directory. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/checkpoint.h"
#include "base/error.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class RunDirectory {
 public:
  /// No directory: all calls do nothing.
  RunDirectory() = default;
  /// The leader's, for as long as it lives. With Overwrite, what the earlier run has comes back where begin()
  /// is never called. Throws: InvalidArgument when it has a run and `how` is New, when
  /// another process leads a run in it, and when it cannot be made or written into.
  RunDirectory(std::filesystem::path directory, RunStart how);
  ~RunDirectory();
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) noexcept;

  /// The first step begins. Throws: Unavailable.
  void begin(const proto::Job& job);
  /// `result`: JSON.
  void end(const std::string& result);

 private:
  std::filesystem::path directory_;
  int lock_ = -1;  // a descriptor
};

/// From now on the log of this process goes there, too. `role`: "worker-0". Nothing without a run_directory.
/// Throws: InvalidArgument.
void log_into_run_directory(const proto::Job& job, const std::string& role);

/// Whether the trace has the latest of all steps. A run directory's own has the first kTracedSteps, since
/// recording takes time of each node.
bool traces_all_steps(const proto::Job& job);
inline constexpr std::uint64_t kTracedSteps = 20;

/// "runs/a-2": the first of its kind where there is nothing.
std::string next_run_directory(const std::filesystem::path& directory);

}  // namespace braid::worker
