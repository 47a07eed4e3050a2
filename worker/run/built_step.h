// What a run builds of its model: the strategy's rewrite, the compiled step with its variables, and what
// feeds it. Thread rule: built by one thread, no step in flight.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/exec/instance.h"
#include "engine/staging/stage.h"
#include "worker/input/input_staging.h"
#include "worker/run/context.h"
#include "worker/run/input.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct BuiltStep {
  /// Differentiates, rewrites, decides the streams, compiles, binds, and gives the variables their first
  /// values. `first_wait`: for the leader's decision of streams. Throws: what compile() throws; as
  /// tuned_streams().
  BuiltStep(const RunContext& run, const RunInput& input, const WaitContext& first_wait);
  BuiltStep(const BuiltStep&) = delete;  // `input` looks at the graph where it is
  BuiltStep& operator=(const BuiltStep&) = delete;

  std::unique_ptr<Strategy> strategy;
  TrainingGraph training;
  StageSession stages;
  std::unique_ptr<InputStaging> input;
  std::unique_ptr<Instance> instance;
  int steps_in_flight = 1;
  std::uint64_t plan_hash = 0;
  std::uint64_t agreed_hash = 0;  // what all workers of an all-reduce have alike
};

}  // namespace braid::worker
