// What a program that embeds a run brings to it, and is told: rows in place of the job's files, values to
// begin with, and functions that are called between steps. The command line brings nothing. Thread rule: the
// functions are called by the thread that trains, one at a time, with no step in flight where that is said.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/schema/table.h"
#include "engine/ir/tensor.h"
#include "worker/metrics/metrics.h"
#include "worker/run/result.h"

namespace braid {
class VariableStore;
}
namespace braid::proto {
class Job;
}

namespace braid::worker {

struct StepOutcome;
struct RunHooks;

/// The learning rate of a step of a job (worker/job/schedule.h), times the factor of the hooks; null: of
/// none.
float learning_rate(const proto::Job& job, const RunHooks* hooks, std::uint64_t step,
                    std::uint64_t total_steps);

struct RunHooks {
  /// In place of input.train_files and input.test_files; null: those are read.
  std::shared_ptr<const Table> train = nullptr, test = nullptr;
  /// Variables and slots of an earlier run of the model, by name: the others begin as the model says.
  std::map<std::string, Tensor> initial = {};
  /// Steps that are in them: the run goes on behind these, with their place in the input.
  std::uint64_t first_step = 0;
  /// By which the job's learning rate is multiplied: in step t by number t / factor_every of these, behind
  /// them by the last one. Empty: by 1.
  std::vector<double> rate_factors = {};
  std::uint64_t factor_every = 1;

  // Each may be null. What they throw ends the run.
  std::function<void(const StepOutcome&)> step = {};
  /// Where the leader evaluates or saves, behind that; no step in flight.
  std::function<void(std::uint64_t done)> border = {};
  std::function<void(std::uint64_t done, const MetricValues&)> evaluated = {};
  /// Behind the last step, before peers leave; no step in flight. Servers' dense variables are up to date.
  std::function<void(const TrainResult&, const VariableStore&)> ended = {};
};

}  // namespace braid::worker
