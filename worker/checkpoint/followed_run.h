// Which run in a checkpoint directory an evaluator task is to measure: the one that writes there, also while
// it has no checkpoint yet and those of an earlier one still lie beside RUN. Thread rule: const.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/checkpoint.h"

namespace braid::worker {

class FollowedRun {
 public:
  /// `how` the job begins, as its command line says. The leader of a job that overwrites begins its run
  /// within `start_time` of this moment; a run from before is the one that it overwrites.
  FollowedRun(const std::filesystem::path& root, RunStart how, std::chrono::seconds start_time);

  /// The run's whole checkpoints, oldest first.
  std::vector<CheckpointInfo> checkpoints() const;

 private:
  const CheckpointStore store_;
  const std::int64_t not_before_;  // seconds since 1970
};

}  // namespace braid::worker
