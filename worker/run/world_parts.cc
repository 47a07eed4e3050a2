#include "worker/run/world_parts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/exec/runtime.h"
#include "proto/job.pb.h"
#include "worker/elastic/elastic_world.h"
#include "worker/job/elastic.h"
#include "worker/run/batch_queue.h"
#include "worker/run/hooks.h"
#include "worker/run/slow_start.h"
#include "worker/run/trainer.h"

namespace braid::worker {

WorldParts::WorldParts(const RunContext& run, const RunWaits& waits, StopGrace& grace, Tell tell)
    : run_(run),
      elastic_(run.options.elastic),
      waits_(waits),
      grace_(grace),
      tell_(std::move(tell)),
      spreads_state_(elastic_ && worker::spreads_state(run.job)) {}

void WorldParts::load(const StartedRun& started, RunReport& report) {
  started_ = &started;
  report_ = &report;
  const SlowStart slow("reading rows");
  input = load_rows(run_, started.id, waits_.first());
}

void WorldParts::enter() {
  if (!elastic_) return build(nullptr);
  for (;;) {
    try {
      const comm::World world = elastic_->enter(holding_, waits_.next_world());
      return build(&world);
    } catch (const Error& error) {
      if (elastic_->is_over() || !ended_a_wait(error) || run_.stop.requested()) throw;
      log_warning("the workers of this world do not come together: {}", error.message());
    }
  }
}

void WorldParts::build(const comm::World* world) {
  tear_down();
  share_rows(run_, input);
  built.emplace(run_, input, waits_.first(), world && world->source >= 0);
  evaluation.emplace(run_, input, *built->strategy, waits_);
  if (!evaluations_.empty()) evaluation->restore(evaluations_);
  if (!std::exchange(drawn_, true)) report_->draw(built->instance->program());
  steps.emplace(run_, *built, input, waits_, grace_);
  const WaitContext wait = world ? waits_.start() : waits_.first();
  {
    const SlowStart slow("waiting for the steps of the other workers");
    built->strategy->agree_on_plan(built->agreed_hash, wait);
  }
  const std::optional<RunCheckpoints> earlier = std::move(checkpoints);
  checkpoints.emplace(run_, whose_checkpoints(), *built, evaluation->metric(), evaluation->keeps_best());
  if (earlier) checkpoints->continue_from(*earlier);
  const std::uint64_t first = !world           ? start(wait)
                              : spreads_state_ ? take_over_parts(wait)
                                               : take_over(*world, wait);
  if (!begun_) first_ = first;
  if (!input.taken) job_step_ = first;
  steps->begin(first, job_step_);
  report_->watch(*steps, input.data.stream);
}

void WorldParts::tear_down() {
  if (evaluation) evaluations_ = evaluation->state();
  report_->unwatch();
  steps.reset();
  evaluation.reset();
  built.reset();
  input.batcher.reset();
  if (spreads_state_) run_.runtime.variables().clear();
}

/// Behind agree_on_plan(), as the leader has begun its run by then.
const StartedRun& WorldParts::whose_checkpoints() {
  if (!spreads_state_ || run_.peers.leader()) return *started_;
  leaders_.id = CheckpointStore(run_.job.checkpoint().directory()).current_run();
  return leaders_;
}

std::uint64_t WorldParts::first_step() const {
  return run_.options.hooks ? run_.options.hooks->first_step : 0;
}

std::uint64_t WorldParts::start(const WaitContext& wait) {
  const SlowStart slow("restoring and sharing variables");
  const std::optional<CheckpointInfo> restored = restore(false);
  const std::uint64_t first = built->strategy->start(restored ? &*restored : nullptr, run_.resumes(),
                                                     restored ? restored->meta.step : first_step(), wait);
  checkpoints->begin(first, restored.has_value());
  if (input.taken) take_batches(first, restored, wait);
  return first;
}

void WorldParts::take_batches(std::uint64_t first, const std::optional<CheckpointInfo>& restored,
                              const WaitContext& wait) {
  job_step_ = run_.peers.leader() ? open_batch_queue(run_, input, restored, wait) : 0;
  input.taken->begin(first);
}

/// `goes_back`: of a run that is under way.
std::optional<CheckpointInfo> WorldParts::restore(bool goes_back) {
  const Batcher* const order = input.taken ? nullptr : input.batcher.get();
  std::optional<CheckpointInfo> restored =
      goes_back ? checkpoints->go_back(order) : checkpoints->restore(order);
  if (restored && restored->meta.attributes.contains(kEvaluations))
    evaluation->restore(restored->meta.attributes.at(kEvaluations));
  return restored;
}

/// The variables of the world: those of the worker that is furthest, or where nobody has whole ones the
/// leader's checkpoint, or what the run begins with.
std::uint64_t WorldParts::take_over(const comm::World& world, const WaitContext& wait) {
  std::uint64_t step = world.step;
  if (world.source < 0 && elastic_->leads()) {
    const std::optional<CheckpointInfo> restored = restore(begun_);
    step = restored ? restored->meta.step : first_step();
    if (!restored && begun_) give_up();
    if (!begun_) checkpoints->begin(step, restored.has_value());
  }
  if (world.source < 0 || world.spread) {
    const bool is_behind = begun_ && holding_.whole && holding_.step + 1 == world.step;
    holding_.whole = holding_.whole && holding_.step == world.step;
    step = built->strategy->take_over(std::max(world.source, 0), step, wait);
    if (world.source >= 0) learn_loss(world, is_behind, wait);
  }
  run_.runtime.variables().clear_poison();
  holding_ = {step, true};
  log_info("world {} begins at step {}", world.generation, step);
  return step;
}

/// All read the leader's newest checkpoint, each its part, or begin as the leader does.
std::uint64_t WorldParts::take_over_parts(const WaitContext& wait) {
  enum : std::int64_t { Begins, Resumes, GoesBack };
  std::int64_t how = begun_ ? GoesBack : run_.resumes() ? Resumes : Begins;  // the leader's
  run_.peers.communicator->broadcast(&how, 1, DType::Int64, 0, StreamRef::host(), wait);
  std::optional<CheckpointInfo> restored;
  if (how != Begins) restored = restore(how == GoesBack || !run_.resumes());
  if (how == GoesBack && !restored && elastic_->leads()) give_up();
  const std::uint64_t step = built->strategy->start(restored ? &*restored : nullptr, run_.resumes(),
                                                    restored ? restored->meta.step : first_step(), wait);
  if (!begun_) checkpoints->begin(step, restored.has_value());
  run_.runtime.variables().clear_poison();
  holding_ = {step, false};
  log_info("world {} begins at step {}", elastic_->generation(), step);
  return step;
}

/// Whose step has failed after others had made it hears of its loss.
void WorldParts::learn_loss(const comm::World& world, bool is_behind, const WaitContext& wait) {
  float loss = report_->loss();
  run_.peers.communicator->broadcast(&loss, 1, DType::Float32, world.source, StreamRef::host(), wait);
  if (is_behind) tell_({world.step - 1, loss, 0, false, world.step - 1});
}

void WorldParts::give_up() {
  const Unavailable error(
      spreads_state_ ? "a worker was lost with its rows, and there is no checkpoint to go back to: set "
                       "checkpoint.every_steps"
                     : "the step in which a worker was lost had changed variables already, and there is no "
                       "checkpoint to go back to: set checkpoint.directory");
  elastic_->end(make_error(error.code(), error.message()));
  throw error;
}

void WorldParts::hold_state() {
  for (const StepOutcome& outcome : steps->settle()) tell_(outcome);
  holding_ = {steps->done(), !spreads_state_};
  try {
    run_.runtime.variables().check_not_poisoned();
  } catch (const Internal& error) {
    holding_.whole = false;
    log_warning("step {}: {}", steps->done(), error.message());
  }
}

}  // namespace braid::worker
