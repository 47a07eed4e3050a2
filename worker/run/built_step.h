// What a run builds of its model: the strategy's rewrite, the compiled step with its variables, and what
// feeds it. Thread rule: built by one thread, no step in flight.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/exec/instance.h"
#include "engine/staging/stage.h"
#include "worker/input/input_staging.h"
#include "worker/input/step_feeds.h"
#include "worker/run/context.h"
#include "worker/run/input.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct BuiltStep {
  /// Differentiates, rewrites, decides the streams, compiles, binds, and gives the variables their first
  /// values, unless `keeps_variables`: those that are there are a run's that goes on. `run` and `input`
  /// outlive it. `first_wait`: for the leader's decision of streams. Throws: what compile() throws; as
  /// tuned_streams().
  BuiltStep(const RunContext& run, const RunInput& input, const WaitContext& first_wait,
            bool keeps_variables = false);
  BuiltStep(const BuiltStep&) = delete;  // `input` looks at the graph where it is
  BuiltStep& operator=(const BuiltStep&) = delete;

  /// The room of ragged columns may grow between steps: no other process's step has to have the same.
  bool can_grow() const { return grows_; }
  /// Grows the batcher's room, compiles the step again for it and binds it; in `instance` then. Its bits are
  /// those of a step that had the room from the start. REQUIRES: can_grow(), Batcher::outgrown(), no step in
  /// flight and their instance gone, the stage stopped.
  void grow();

  std::unique_ptr<Strategy> strategy;
  TrainingGraph training;
  StageSession stages;
  StepFeeds feeds;
  std::unique_ptr<InputStaging> input;  // of feeds.batch()
  std::unique_ptr<Instance> instance;
  std::unique_ptr<Instance> before_first;  // null, or to be run before the first step, with feeds.of_next()
  int steps_in_flight = 1;
  std::uint64_t plan_hash = 0;
  std::uint64_t agreed_hash = 0;  // what all workers of an all-reduce have alike

 private:
  const RunContext run_;
  const RunInput& from_;
  CompileOptions options_;
  bool grows_ = false;
};

}  // namespace braid::worker
