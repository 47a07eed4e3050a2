// The leader's evaluations during a run and at its end: when one is due, what the last one found, and what is
// told of it. worker/evaluator.h does the measuring. Thread rule: one thread, no step in flight.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "worker/evaluator.h"
#include "worker/run/built_step.h"
#include "worker/run/context.h"
#include "worker/run/input.h"
#include "worker/run/waits.h"

namespace braid::worker {

class RunEvaluation {
 public:
  /// All outlive it. Compiles nothing yet. Measures nothing where the process has no test data, or the model
  /// no metric.
  RunEvaluation(const RunContext& run, const RunInput& input, Strategy& strategy, const RunWaits& waits);

  bool measures() const { return evaluator_ != nullptr; }
  /// In steps; 0: at the end only.
  std::uint64_t interval() const;
  bool is_due(std::uint64_t step) const;
  /// Measures the variables of that step, once. A request to stop breaks it off.
  void measure(std::uint64_t step);
  bool has_measured(std::uint64_t step) const { return measured_ == step; }

  const char* metric() const;
  const std::optional<Quality>& last() const { return quality_; }
  /// By name, of the variables of `step`; empty when others were measured last.
  std::map<std::string, double> metrics(std::uint64_t step) const;

 private:
  const RunContext run_;
  const ModelMetric metric_;
  Strategy& strategy_;
  const RunWaits& waits_;
  std::unique_ptr<Evaluator> evaluator_;
  std::uint64_t measured_ = UINT64_MAX;  // a step
  std::optional<Quality> quality_;
};

}  // namespace braid::worker
