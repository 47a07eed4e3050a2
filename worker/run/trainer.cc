#include "worker/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/runtime.h"
#include "proto/job.pb.h"
#include "worker/elastic/elastic_world.h"
#include "worker/process/stop_grace.h"
#include "worker/run/built_step.h"
#include "worker/run/checkpoints.h"
#include "worker/run/evaluation.h"
#include "worker/run/hooks.h"
#include "worker/run/input.h"
#include "worker/run/report.h"
#include "worker/run/run_directory.h"
#include "worker/run/start.h"
#include "worker/run/steps.h"
#include "worker/run/user_hooks.h"
#include "worker/run/waits.h"

namespace braid::worker {
namespace {

/// The attribute of a checkpoint that says how evaluations went before it.
constexpr const char* kEvaluations = "evaluations";

const RunHooks kNoHooks;

/// A worker that has come to an elastic job, and for which there was no place until its end.
TrainResult never_taken_in(const proto::Job& job) {
  log_info("the job has ended without this worker");
  TrainResult result;
  result.job = job.name();
  return result;
}

/// Everything of one run, in the order in which it is made, but for the report; destroyed in reverse.
class Run {
 public:
  explicit Run(const RunContext& run)
      : run_(run),
        elastic_(run.options.elastic),
        hooks_(run.options.hooks ? *run.options.hooks : kNoHooks),
        grace_(run.stop),
        waits_(run, grace_) {}

  TrainResult train() {
    try {
      prepare();
    } catch (const Error& error) {
      tell_refusal(run_.peers, error);
      if (elastic_ && elastic_->ended_in_order()) return never_taken_in(run_.job);
      tell_elastic(error);
      if (!was_asked_to_stop(run_.stop, error)) throw;
      return stopped_before_steps(run_.job, error);
    }
    try {
      make_steps();
      return leaves_alone_ ? leave() : end();
    } catch (const Error& error) {
      tell_elastic(error);
      user_hooks_->fail(error);
      throw;
    }
  }

 private:
  void make_steps() {
    try {
      while (!loop_in_world() && !leaves_alone_ && !stops_between_) enter_or_leave();
      grace_.pause();
      report_->finish();
    } catch (const Cancelled& error) {
      report_->write_trace();
      if (!grace_.over()) throw Unavailable(error.message());  // a peer was asked, and waits no longer
      throw Unavailable(fmt::format("asked to stop while step {} waits for its peers: {}",
                                    steps_ ? steps_->done() : holding_.step, error.message()));
    } catch (...) {
      report_->write_trace();
      throw;
    }
  }

  void prepare() {
    started_ = start_run(run_.job, run_.options.start, run_.peers, waits_.first());
    directory_ = std::move(started_.directory);
    replaced_ = std::move(started_.replaced);
    log_into_run_directory(run_.job, run_.options.role);
    report_.emplace(run_);
    user_hooks_ = std::make_unique<UserHooks>(run_);
    input_ = load_rows(run_, started_.id);
    enter();
  }

  // ------------------------------------------------------------------------------------------------- worlds

  /// Makes what steps need, for the workers that there are; of an elastic job in the next world that comes
  /// about.
  void enter() {
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

  /// The same behind steps: who is asked to stop meanwhile still has the last ones.
  void enter_or_leave() {
    try {
      enter();
    } catch (const Error& error) {
      const bool stops = run_.stop.requested() || error.code() == ErrorCode::Cancelled;
      if (!stops || !steps_ || !holding_.whole) throw;
      log_info("asked to stop between two worlds: {}", error.message());
      leaves_alone_ = !elastic_->leads();
      stops_between_ = !leaves_alone_;
    }
  }

  void build(const comm::World* world) {
    const std::string evaluations = evaluation_ ? evaluation_->state() : std::string();
    tear_down();
    share_rows(run_, input_);
    const bool keeps = world && world->source >= 0;
    built_.emplace(run_, input_, waits_.first(), keeps);
    evaluation_.emplace(run_, input_, *built_->strategy, waits_);
    if (!evaluations.empty()) evaluation_->restore(evaluations);
    if (!std::exchange(drawn_, true)) report_->draw(built_->instance->program());
    steps_.emplace(run_, *built_, *input_.batcher, waits_, grace_);
    const WaitContext wait = world ? waits_.start() : waits_.first();
    built_->strategy->agree_on_plan(built_->agreed_hash, wait);
    std::optional<RunCheckpoints> earlier = std::move(checkpoints_);
    checkpoints_.emplace(run_, started_, *built_, evaluation_->metric(), evaluation_->keeps_best());
    const std::uint64_t first = world ? take_over(*world, wait) : start(wait);
    if (earlier)
      checkpoints_->continue_from(*earlier);
    else
      first_ = first;
    steps_->begin(first, input_.total_steps);
    report_->watch(*steps_);
  }

  void tear_down() {
    report_->unwatch();
    steps_.reset();
    evaluation_.reset();
    built_.reset();
    input_.batcher.reset();
  }

  std::uint64_t start(const WaitContext& wait) {
    const std::optional<CheckpointInfo> restored = restore(false);
    const std::uint64_t first =
        built_->strategy->start(restored ? &*restored : nullptr, run_.resumes(),
                                restored ? restored->meta.step : hooks_.first_step, wait);
    checkpoints_->begin(first, restored.has_value());
    return first;
  }

  /// `goes_back`: of a run that is under way.
  std::optional<CheckpointInfo> restore(bool goes_back) {
    std::optional<CheckpointInfo> restored =
        goes_back ? checkpoints_->go_back(*input_.batcher) : checkpoints_->restore(*input_.batcher);
    if (restored && restored->meta.attributes.contains(kEvaluations))
      evaluation_->restore(restored->meta.attributes.at(kEvaluations));
    return restored;
  }

  /// The variables of the world: those of the worker that is furthest, or where nobody has whole ones the
  /// leader's checkpoint, or what the run begins with.
  std::uint64_t take_over(const comm::World& world, const WaitContext& wait) {
    std::uint64_t step = world.step;
    if (world.source < 0 && elastic_->leads()) {
      const std::optional<CheckpointInfo> restored = restore(begun_);
      step = restored ? restored->meta.step : hooks_.first_step;
      if (!restored && begun_) give_up();
      if (!begun_) checkpoints_->begin(step, restored.has_value());
    }
    if (world.source < 0 || world.spread) {
      const bool has_it = holding_.whole && holding_.step == world.step;
      holding_.whole = has_it;
      step = built_->strategy->take_over(std::max(world.source, 0), step, wait);
    }
    run_.runtime.variables().clear_poison();
    holding_ = {step, true};
    log_info("world {} begins at step {}", world.generation, step);
    return step;
  }

  [[noreturn]] void give_up() {
    const Unavailable error(
        "the step in which a worker was lost had changed variables already, and there is no checkpoint to go "
        "back to: set checkpoint.directory");
    elastic_->end(make_error(error.code(), error.message()));
    throw error;
  }

  /// Whether the run is over in this world; else another one goes on with it.
  bool loop_in_world() {
    try {
      loop();
      if (!elastic_ || !steps_->leaves_world() || is_complete()) return true;
    } catch (const Error& error) {
      if (!elastic_ || !steps_->lost_peers() || !ended_a_wait(error)) throw;
      log_warning("step {}: {}", steps_->done(), error.message());
    }
    hold_state();
    if (!run_.stop.requested()) return false;
    if (!holding_.whole) throw Unavailable("asked to stop, and the last step has failed half way");
    leaves_alone_ = !elastic_->leads();
    return elastic_->leads();  // it saves, and ends the job for all
  }

  void hold_state() {
    grace_.pause();
    for (const StepOutcome& outcome : steps_->settle()) tell(outcome);
    report_->pause();
    holding_ = {steps_->done(), true};
    try {
      run_.runtime.variables().check_not_poisoned();
    } catch (const Internal& error) {
      holding_.whole = false;
      log_warning("step {}: {}", steps_->done(), error.message());
    }
  }

  void tell_elastic(const Error& error) {
    if (elastic_ && elastic_->leads() && !elastic_->is_over())
      elastic_->end(make_error(error.code(), error.message()));
  }

  // -------------------------------------------------------------------------------------------------- steps

  bool is_complete() const {
    return steps_->done() >= input_.total_steps || (steps_->input_ended() && steps_->idle());
  }

  void loop() {
    if (begun_) {
      report_->go_on(input_.share);
    } else {
      directory_.begin(run_.job);
      if (replaced_) replaced_->begin();
      report_->begin(first_, input_.total_steps, input_.share, train_rows());
      checkpoints_->start_clock();
    }
    begun_ = true;
    grace_.resume();
    while (!is_complete() && !(steps_->stopping() && steps_->idle())) {
      // No step beyond the next checkpoint or evaluation is in flight when that is due.
      const std::uint64_t border = next_border();
      if (const auto outcome = steps_->advance(border)) {
        tell(*outcome);
      }
      if (steps_->done() == border && steps_->idle() && !is_complete()) at_border();
    }
  }

  void tell(const StepOutcome& outcome) {
    report_->record(outcome);
    if (hooks_.step) hooks_.step(outcome);
    user_hooks_->step(outcome.step, outcome.loss);
  }

  std::uint64_t next_border() const {
    const std::uint64_t done = steps_->done();
    std::uint64_t border = input_.total_steps;
    for (const std::uint64_t every : {checkpoints_->interval(), evaluation_->interval()})
      if (every > 0) border = std::min(border, (done / every + 1) * every);
    return checkpoints_->is_due_by_clock(done, steps_->next()) ? std::min(border, steps_->next()) : border;
  }

  void at_border() {
    grace_.pause();
    report_->pause();
    const std::unique_ptr<Stage::Pause> pause = steps_->pause_input();
    if (evaluation_->is_due(steps_->done())) {
      measure(steps_->done());
      if (const auto& measured = evaluation_->last())
        report_->evaluated(steps_->done(), evaluation_->metric(), *measured);
      tell_evaluation();
      stop_early_or_go_on();
    }
    const bool is_best =
        evaluation_->keeps_best() && evaluation_->has_measured(steps_->done()) && evaluation_->improved();
    if (checkpoints_->is_due(steps_->done(), steps_->next()) || (is_best && checkpoints_->enabled())) save();
    if (hooks_.border) hooks_.border(steps_->done());
    built_->strategy->meet_at_border(waits_.peers());
    report_->resume();
    grace_.resume();
  }

  void measure(std::uint64_t step) {
    if (evaluation_->measures()) report_->evaluating(step);
    evaluation_->measure(step);
  }

  /// Of all workers.
  std::int64_t train_rows() const {
    const Table& train = *input_.data.train;
    return std::max(train.rows, train.rows_of_all);
  }

  void tell_evaluation() const {
    if (hooks_.evaluated && evaluation_->has_measured(steps_->done()) && evaluation_->last())
      hooks_.evaluated(steps_->done(), *evaluation_->last());
  }

  void stop_early_or_go_on() {
    if (!evaluation_->has_measured(steps_->done()) || !stopped_early_.empty()) return;
    stopped_early_ = evaluation_->reason_to_stop();
    if (stopped_early_.empty()) return;
    log_info("step {}: training stops early: {} {}", steps_->done(), evaluation_->metric().name(),
             stopped_early_);
    steps_->finish_early();
  }

  void save() {
    const std::uint64_t done = steps_->done();
    std::map<std::string, double> metrics = evaluation_->metrics(done);
    metrics["loss"] = report_->loss();
    std::map<std::string, std::string> attributes;
    if (evaluation_->keeps_best()) attributes[kEvaluations] = evaluation_->state();
    if (input_.data.followed.feed) attributes[kInputFiles] = text_of(input_.data.followed.feed->taken());
    if (steps_->finished_early()) attributes[kEndedEarly] = stopped_early_;
    checkpoints_->save(done, input_.batcher->cursor(Batcher::ticket_of(steps_->cursor())), metrics,
                       attributes, waits_.start());
    user_hooks_->checkpoint(done, checkpoints_->directory_of(done), metrics);
  }

  TrainResult end() {
    steps_->cancel_input();
    bool terminated = steps_->stopping() && !is_complete() && !steps_->finished_early();
    const std::uint64_t done = steps_->done();
    // Whether the last checkpoint is among the best is to be known when it is written.
    if (!terminated && (run_.job.checkpoint().keep_best() > 0 || evaluation_->keeps_best())) measure(done);
    if (checkpoints_->enabled() && done > first_) save();
    finish_steps();
    if (!terminated) {
      measure(done);
      if (evaluation_->has_measured(done) && evaluation_->last())
        report_->evaluated(done, evaluation_->metric(), *evaluation_->last());
      terminated = evaluation_->measures() && !evaluation_->has_measured(done);
    }
    report_->end(done, terminated);
    report_->write_trace();
    if (!run_.options.hooks && (run_.peers.leader() || run_.peers.world > 1)) report_->print_streams();
    if (hooks_.ended) {
      if (!terminated) tell_evaluation();
      if (run_.peers.leader()) built_->strategy->refresh_variables(waits_.start());
      hooks_.ended(result(terminated), run_.runtime.variables());
    }
    built_->strategy->shut_down(terminated, waits_.start());
    if (elastic_)
      elastic_->end(terminated ? make_error(ErrorCode::Cancelled, "the leader was asked to stop") : nullptr);
    const TrainResult all = result(terminated);
    directory_.end(all.to_json());
    user_hooks_->end(all);
    return all;
  }

  /// All updates are made: in an elastic job a worker that is lost by now is none that is needed.
  void finish_steps() {
    try {
      built_->strategy->finish_steps(waits_.start());
    } catch (const Error& error) {
      if (!elastic_ || !ended_a_wait(error)) throw;
      log_warning("the workers do not end together: {}", error.message());
    }
    if (elastic_) elastic_->finish();
  }

  /// Of an elastic job: the others go on.
  TrainResult leave() {
    steps_->cancel_input();
    if (!elastic_->is_over()) log_info("asked to stop: the others go on from step {}", steps_->done());
    elastic_->leave("it was asked to stop");
    report_->end(steps_->done(), true);
    report_->write_trace();
    const TrainResult all = result(!elastic_->ended_in_order());
    user_hooks_->end(all);
    return all;
  }

  TrainResult result(bool terminated) const {
    TrainResult result;
    result.job = run_.job.name();
    result.steps = steps_->done() - first_;
    result.last_step = steps_->done();
    result.loss = report_->loss();
    result.measured = evaluation_->last();
    result.best = best();
    result.stopped_early = stopped_early_;
    if (built_->training.loss_scale) result.skipped_steps = report_->skipped_steps();
    result.examples = static_cast<std::int64_t>(result.steps) * run_.job.input().global_batch_size();
    result.seconds = report_->seconds();
    result.input_wait_seconds = steps_->input_wait_seconds();
    result.exit = terminated ? kExitTerminated : kExitSuccess;
    return result;
  }

  /// Where there were several evaluations to choose from.
  std::optional<TrainResult::Best> best() const {
    if (evaluation_->interval() == 0 || !evaluation_->best()) return std::nullopt;
    const EarlyStopping::Best& found = *evaluation_->best();
    TrainResult::Best best{found.step, evaluation_->metric().name(), found.value,
                           checkpoints_->directory_of(found.step)};
    log_info("best: {} {:.4f} at step {}{}", best.metric, best.value, best.step,
             best.checkpoint.empty() ? "" : ": " + best.checkpoint);
    return best;
  }

  const RunContext run_;
  ElasticWorld* const elastic_;  // null: the workers are those that there are
  const RunHooks& hooks_;
  StopGrace grace_;
  const RunWaits waits_;
  RunInput input_;
  std::optional<BuiltStep> built_;
  std::optional<RunEvaluation> evaluation_;
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<TrainingSteps> steps_;
  RunDirectory directory_;
  std::unique_ptr<ReplacedRun> replaced_;
  std::unique_ptr<UserHooks> user_hooks_;
  std::optional<RunReport> report_;  // goes before the steps, which the HTTP thread sees through it
  StartedRun started_;
  std::uint64_t first_ = 0;
  bool drawn_ = false;
  bool begun_ = false;  // a step was, of this process
  comm::Holding holding_;
  bool leaves_alone_ = false, stops_between_ = false;
  std::string stopped_early_;  // why
};

}  // namespace

bool was_asked_to_stop(const StopFlag& stop, const Error& error) {
  return (stop.requested() && ended_a_wait(error)) || error.code() == ErrorCode::Cancelled;
}

bool ended_a_wait(const Error& error) {
  return error.code() == ErrorCode::Cancelled || error.code() == ErrorCode::Unavailable ||
         error.code() == ErrorCode::DeadlineExceeded;
}

TrainResult stopped_before_steps(const proto::Job& job, const Error& error) {
  log_info("asked to stop before the first step; nothing to save: {}", error.message());
  TrainResult result;
  result.job = job.name();
  result.exit = kExitTerminated;
  return result;
}

TrainResult train(const proto::Job& job, const TrainOptions& options, const Peers& peers, Runtime& runtime,
                  Monitor& monitor, const StopFlag& stop) {
  return Run({job, options, peers, runtime, monitor, stop}).train();
}

}  // namespace braid::worker
