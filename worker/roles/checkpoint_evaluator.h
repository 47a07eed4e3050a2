// The evaluator task of a cluster: it takes no part in training, but watches the job's checkpoint directory
// and measures each checkpoint on the test data, in order, whichever strategy wrote it, with tables of
// parameter servers put together in memory. It ends with the checkpoint of the job's last step. Thread rule:
// one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checkpoint.h"
#include "worker/metrics/metrics.h"
#include "worker/process/stop_signal.h"
#include "worker/watch/monitor.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// What the last line of an evaluator says.
struct EvaluationResult {
  std::string job;
  std::uint64_t evaluations = 0;
  std::uint64_t last_step = 0;           // of the checkpoint that was measured last
  std::optional<MetricValues> measured;  // of that
  double seconds = 0;
  int exit = 0;

  std::string to_json() const;
};

/// Each of the run that writes there is measured (worker/checkpoint/followed_run.h; `start`: how it begins),
/// also where training is faster and prunes them (worker/checkpoint/held_checkpoints.h). Throws:
/// InvalidArgument when the job has no checkpoint directory or no test data; Unavailable when no checkpoint
/// came for evaluation.patience_seconds; DataLoss; what a step throws. On SIGTERM it returns exit 143.
EvaluationResult evaluate_checkpoints(const proto::Job& job, const std::filesystem::path& data_dir,
                                      RunStart start, Runtime& runtime, Monitor& monitor,
                                      const StopFlag& stop);

}  // namespace braid::worker
