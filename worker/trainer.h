// One worker's training run: data, graph, strategy, program, staging, the step loop, checkpoints, evaluation.
// The same code for all strategies and all workers; the leader (rank 0) also saves, evaluates and reports.
// Thread rule: train() runs on the calling thread; stages, streams and the monitor have their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/model.h"
#include "worker/monitor.h"
#include "worker/stop_signal.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct TrainOptions {
  std::filesystem::path data_dir;
  bool resume = false;
  std::string role = "worker-0";  // in file names: "%r" of trace_file and steps_file
};

/// What the last line of a run says.
struct TrainResult {
  std::string job;
  std::uint64_t steps = 0;      // finished in this run
  std::uint64_t last_step = 0;  // steps in the variables
  double loss = 0;              // of the last step
  ModelMetric metric = ModelMetric::None;
  std::optional<double> quality;  // accuracy or AUC on the test data; of several tasks the mean
  std::vector<std::pair<std::string, double>> tasks;  // and of each
  std::int64_t examples = 0;                          // consumed by all workers
  double seconds = 0;                                 // of the step loop
  double input_wait_seconds = 0;                      // the loop waiting for its next batch
  int exit = 0;

  std::string to_json() const;
};

/// Whether that is what a wait for peers throws: asked to stop, or they stopped before.
bool ended_a_wait(const Error& error);
/// The result of a run that was asked to stop while it waited for its peers, where `error` ended the wait.
TrainResult stopped_before_steps(const proto::Job& job, const Error& error);

/// Throws: what any part throws; main turns it into an exit code. On SIGTERM it saves, and returns exit 143:
/// at the end of the step, while it waits for peers before the first one, or between two batches of an
/// evaluation.
TrainResult train(const proto::Job& job, const TrainOptions& options, const Peers& peers, Runtime& runtime,
                  Monitor& monitor, const StopFlag& stop);

}  // namespace braid::worker
