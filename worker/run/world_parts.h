// What a run makes for the workers that there are: this worker's batches, the compiled step with its
// variables, evaluation, checkpoints, and the steps. Of an elastic job once for each world, for as many
// workers as it has, from the variables that the last world had. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/membership/membership.h"
#include "worker/run/built_step.h"
#include "worker/run/checkpoints.h"
#include "worker/run/context.h"
#include "worker/run/evaluation.h"
#include "worker/run/input.h"
#include "worker/run/report.h"
#include "worker/run/start.h"
#include "worker/run/steps.h"
#include "worker/run/waits.h"

namespace braid::worker {

class WorldParts {
 public:
  using Tell = std::function<void(const StepOutcome&)>;

  /// All outlive it. `tell` is called for steps that this worker learns of while worlds change.
  WorldParts(const RunContext& run, const RunWaits& waits, StopGrace& grace, Tell tell);

  /// Reads the rows. `started` outlives it.
  void load(const StartedRun& started, RunReport& report);
  /// Makes the parts anew: of an elastic job in the next world that comes about. Where a wait fails in
  /// between, `steps` may be empty. Throws: what waits for peers and compilation throw.
  void enter();
  /// No step follows in this world: ends those in flight, and sees what the variables are worth.
  void hold_state();

  std::uint64_t first() const { return first_; }        // step of this process
  std::uint64_t job_step() const { return job_step_; }  // of the job, that it begins at
  /// Behind the last one of this worker; of a queue of batches nobody knows before how many it takes.
  std::uint64_t last_step() const { return input.taken ? UINT64_MAX : input.total_steps; }
  bool begun() const { return begun_; }  // a step was to be made
  void begin() { begun_ = true; }
  const comm::Holding& holding() const { return holding_; }  // behind hold_state()
  /// The next world's workers read a checkpoint, as each has a part of the state.
  bool spreads_state() const { return spreads_state_; }

  RunInput input;
  std::optional<BuiltStep> built;
  std::optional<RunEvaluation> evaluation;
  std::optional<RunCheckpoints> checkpoints;
  std::optional<TrainingSteps> steps;

 private:
  void build(const comm::World* world);
  void tear_down();
  std::uint64_t start(const WaitContext& wait);
  void take_batches(std::uint64_t first, const std::optional<CheckpointInfo>& restored,
                    const WaitContext& wait);
  const StartedRun& whose_checkpoints();
  std::uint64_t take_over(const comm::World& world, const WaitContext& wait);
  std::uint64_t take_over_parts(const WaitContext& wait);
  void learn_loss(const comm::World& world, bool is_behind, const WaitContext& wait);
  std::optional<CheckpointInfo> restore(bool goes_back);
  [[noreturn]] void give_up();
  std::uint64_t first_step() const;

  const RunContext run_;
  ElasticWorld* const elastic_;  // null: the workers are those that there are
  const RunWaits& waits_;
  StopGrace& grace_;
  const Tell tell_;
  const bool spreads_state_;
  const StartedRun* started_ = nullptr;
  StartedRun leaders_;  // the leader's run, of a worker that reads its checkpoints
  RunReport* report_ = nullptr;
  std::string evaluations_;  // how they went in the worlds before
  std::uint64_t first_ = 0, job_step_ = 0;
  bool drawn_ = false, begun_ = false;
  comm::Holding holding_;
};

}  // namespace braid::worker
