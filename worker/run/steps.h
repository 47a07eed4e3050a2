// Runs the steps of a run: takes each one's batch, starts it, collects results in the order of the steps.
// Knows when the workers have agreed to stop; knows nothing of evaluations, checkpoints and reports, which
// happen between calls. Thread rule: one thread; the stage and its metrics have their own.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/exec/instance.h"
#include "engine/staging/stage.h"
#include "worker/input/padding.h"
#include "worker/process/stop_grace.h"
#include "worker/run/built_step.h"
#include "worker/run/context.h"
#include "worker/run/input.h"
#include "worker/run/slow_start.h"
#include "worker/run/waits.h"
#include "worker/watch/stage_metrics.h"

namespace braid::worker {

struct StepOutcome {
  std::uint64_t step = 0;
  float loss = 0;
  double seconds = 0;
  bool skipped = false;  // gradients overflowed, so nothing was updated
  std::uint64_t job_step =
      0;  // how far the job is: the step, but where workers make different numbers of them
  std::optional<std::int64_t> dropped = {};  // choices of experts, where a model has such
};

class TrainingSteps {
 public:
  /// `built`, `input`, `waits` and `grace` outlive it; the instance becomes its own.
  TrainingSteps(const RunContext& run, BuiltStep& built, const RunInput& input, const RunWaits& waits,
                StopGrace& grace);

  /// Steps from `first` on are to run, while the job is at its step `job_step`. Starts the stage.
  void begin(std::uint64_t first, std::uint64_t job_step);
  /// Starts steps before `border` as long as the plan has room for them, and waits for the oldest one.
  /// Nothing when none is in flight. Throws what the step threw.
  std::optional<StepOutcome> advance(std::uint64_t border);
  /// No batch is made as long as that lives.
  std::unique_ptr<Stage::Pause> pause_input();
  /// The end of the input. Idempotent.
  void cancel_input();

  std::uint64_t next() const { return next_; }  // to be started
  std::uint64_t done() const { return done_; }  // finished, and in the variables
  bool idle() const { return instance_->in_flight() == 0; }
  /// All workers end behind the steps in flight.
  bool stopping() const { return stopping_; }
  /// Asks all workers to, as soon as they have heard of it: the job has what it wanted.
  void finish_early();
  /// Not the job ends, but the world: another one goes on with it.
  bool leaves_world() const { return leaves_world_; }
  /// Ends the steps in flight; the result: those that did not fail. No step may be started after it.
  std::vector<StepOutcome> settle();
  /// A step has failed because a wait for peers has ended.
  bool lost_peers() const { return lost_peers_; }
  /// That is why they end, and nobody was asked to stop.
  bool finished_early() const { return finished_early_; }
  /// The input has no rows for another step.
  bool input_ended() const { return ended_; }
  const std::string& cursor() const { return cursor_; }  // of the input, behind the last finished step
  double input_wait_seconds() const { return input_wait_; }
  std::optional<double> padding() const { return padding_.share(); }  // of ragged columns
  const Stage* stage() const { return stage_.get(); }  // null: input work runs inside of the step

 private:
  /// False: its batch does not fit, and nothing was started.
  bool start_step();
  /// A batch is there, or no step in flight would be kept waiting for a file that has not come, or for what
  /// others make of theirs.
  bool may_take() const;
  /// REQUIRES: no step in flight.
  void make_room();
  StepOutcome finish_step();
  void begin_with_peers(StepRequest request);
  /// By which the schedule goes.
  std::uint64_t job_step_of(std::uint64_t step) const;
  StepResult step_result();
  std::optional<Batch> next_batch();
  /// The next one; the one behind it is there then too, where steps look ahead.
  Batch take_batch();
  Batch wait_for_batch();
  void look_ahead();
  void run_before_first(const Batch& batch);
  void make_stage();

  // Set once.
  const RunContext run_;
  const RunWaits& waits_;
  StopGrace& grace_;
  BuiltStep& built_;
  const RunInput& input_;
  const std::uint64_t seed_;  // of the steps' random ops

  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageMetrics> stage_metrics_;
  std::unique_ptr<Instance> instance_;    // goes before the stage: steps in flight hold batches
  std::optional<Batch> ahead_;            // of the next step
  std::exception_ptr why_nothing_ahead_;  // what the wait for it threw
  std::uint64_t next_ = 0, done_ = 0;
  std::uint64_t job_step_ = 0;
  std::optional<SlowStart> first_step_;  // until it has ended
  std::deque<std::string> cursors_;      // of the steps in flight
  std::string cursor_;
  bool ended_ = false;
  bool outgrown_ = false;  // the next batch does not fit
  bool stopping_ = false, finished_early_ = false, leaves_world_ = false, lost_peers_ = false;
  double input_wait_ = 0;
  Padding padding_;
};

}  // namespace braid::worker
