// The leader's evaluations during a run and at its end: when one is due, what the last one found, which was
// the best, whether it is time to stop, and what is told of all that. worker/evaluation/evaluator.h does the
// measuring, on the leader alone or on all workers, which then help it at the same steps. Thread rule: one
// thread, no step in flight.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/evaluation/evaluator.h"
#include "worker/metrics/early_stopping.h"
#include "worker/run/built_step.h"
#include "worker/run/context.h"
#include "worker/run/input.h"
#include "worker/run/waits.h"

namespace braid::worker {

class RunEvaluation {
 public:
  /// All outlive it. Compiles nothing yet. Measures nothing where the process has no test data. Throws:
  /// InvalidArgument (as job_metrics()).
  RunEvaluation(const RunContext& run, const RunInput& input, Strategy& strategy, const RunWaits& waits);

  bool measures() const { return evaluator_ != nullptr && run_.peers.leader(); }
  /// All workers measure together: whoever does not lead calls help() where the leader calls measure().
  bool is_shared() const { return evaluator_ != nullptr && shared_; }
  /// In steps; 0: at the end only.
  std::uint64_t interval() const;
  bool is_due(std::uint64_t step) const;
  /// Measures the variables of that step, once. A request to stop breaks it off.
  void measure(std::uint64_t step);
  bool has_measured(std::uint64_t step) const { return measured_ == step; }
  /// What a worker does for the leader's measure() of that step, if it has to.
  void help(std::uint64_t step);
  bool helps_at(std::uint64_t step) const;

  /// The metric that decides.
  const Metric& metric() const { return metrics_.front(); }
  const std::optional<MetricValues>& last() const { return last_values_; }
  /// By name, of the variables of `step`; empty when others were measured last.
  std::map<std::string, double> metrics(std::uint64_t step) const;

  /// Whether a checkpoint of the best evaluation is to be there in any case.
  bool keeps_best() const;
  /// Whether the last evaluation was the best so far.
  bool improved() const { return improved_; }
  const std::optional<EarlyStopping::Best>& best() const { return stopping_.best(); }
  /// Why training is to stop before its last step; empty: it is not.
  std::string reason_to_stop() const { return stopping_.reason(); }
  /// What a resumed run needs to decide as this one.
  std::string state() const { return stopping_.state(); }
  void restore(const std::string& state) { stopping_.restore(state); }

 private:
  std::optional<MetricValues> run_evaluator();

  const RunContext run_;
  const std::vector<Metric> metrics_;
  Strategy& strategy_;
  const RunWaits& waits_;
  const JobData& data_;
  EarlyStopping stopping_;
  std::unique_ptr<Evaluator> evaluator_;
  const bool shared_;
  std::uint64_t measured_ = UINT64_MAX, helped_ = UINT64_MAX;  // steps
  bool improved_ = false;
  std::optional<MetricValues> last_values_;
};

}  // namespace braid::worker
