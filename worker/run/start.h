// The begin of a job's run, before data is read: the leader decides by what is in checkpoint.directory
// (base/checkpoint.h), and what it refuses ends all processes of the job at once with its words. Thread rule:
// one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/checkpoint.h"
#include "base/directory_lock.h"
#include "base/error.h"
#include "base/wait_context.h"
#include "worker/run/run_directory.h"
#include "worker/strategies/strategy.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// A checkpoint.directory whose run another is to replace (--overwrite): where that one is never begun, the
/// directory is again of the run that it was of, which --resume goes on with.
class ReplacedRun {
 public:
  ReplacedRun(std::filesystem::path directory, CheckpointRun earlier, CheckpointRun replacing);
  ~ReplacedRun();
  ReplacedRun(const ReplacedRun&) = delete;
  ReplacedRun& operator=(const ReplacedRun&) = delete;
  void begin() { begun_ = true; }

 private:
  void give_back() const;

  const std::filesystem::path directory_;
  const CheckpointRun earlier_, replacing_;
  bool begun_ = false;
};

/// The run that a job's checkpoints are of; no id without a checkpoint.directory.
struct StartedRun {
  std::optional<CheckpointRun> id;
  /// It was there before. Of a directory's first run the leader alone knows that.
  bool continued = false;
  RunDirectory directory;                 // the leader's
  DirectoryLock lock;                     // the leader's, of checkpoint.directory
  std::unique_ptr<ReplacedRun> replaced;  // the leader's, with --overwrite
};

/// Every worker calls it, before all others. Throws: InvalidArgument when a directory cannot be made or
/// written into, has another run or its checkpoints, or another process writes there; Unavailable where that
/// one writes the run that is to go on; on the other workers of an all-reduce the leader's error.
StartedRun start_run(const proto::Job& job, RunStart how, const Peers& peers, const WaitContext& wait);

/// The leader fails before the first step. With parameter servers the others would wait for it until their
/// deadline: when it is for good (a wrong job, bad data) they hear why from the servers. Throws nothing.
void tell_refusal(const Peers& peers, const Error& error);

}  // namespace braid::worker
