#include "worker/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/runtime.h"
#include "proto/job.pb.h"
#include "worker/process/stop_grace.h"
#include "worker/run/batch_queue.h"
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

/// Everything of one run, in the order in which it is made, but for the report; destroyed in reverse.
class Run {
 public:
  explicit Run(const RunContext& run)
      : run_(run),
        hooks_(run.options.hooks ? *run.options.hooks : kNoHooks),
        grace_(run.stop),
        waits_(run, grace_) {}

  TrainResult train() {
    try {
      prepare();
    } catch (const Error& error) {
      tell_refusal(run_.peers, error);
      if (!was_asked_to_stop(run_.stop, error)) throw;
      return stopped_before_steps(run_.job, error);
    }
    try {
      make_steps();
      return end();
    } catch (const Error& error) {
      user_hooks_->fail(error);
      throw;
    }
  }

 private:
  void make_steps() {
    try {
      loop();
    } catch (const Cancelled& error) {
      report_->write_trace();
      if (!grace_.over()) throw Unavailable(error.message());  // a peer was asked, and waits no longer
      throw Unavailable(fmt::format("asked to stop while step {} waits for its peers: {}", steps_->done(),
                                    error.message()));
    } catch (...) {
      report_->write_trace();
      throw;
    }
  }

  void prepare() {
    StartedRun started = start_run(run_.job, run_.options.start, run_.peers, waits_.first());
    directory_ = std::move(started.directory);
    replaced_ = std::move(started.replaced);
    log_into_run_directory(run_.job, run_.options.role);
    report_.emplace(run_);
    user_hooks_ = std::make_unique<UserHooks>(run_);
    input_ = load_input(run_, started.id);
    built_.emplace(run_, input_, waits_.first());
    evaluation_.emplace(run_, input_, *built_->strategy, waits_);
    report_->draw(built_->instance->program());
    steps_.emplace(run_, *built_, input_, waits_, grace_);
    const WaitContext wait = waits_.first();
    built_->strategy->agree_on_plan(built_->agreed_hash, wait);
    checkpoints_.emplace(run_, started, *built_, evaluation_->metric(), evaluation_->keeps_best());
    const std::optional<CheckpointInfo> restored =
        checkpoints_->restore(input_.taken ? nullptr : input_.batcher.get());
    if (restored && restored->meta.attributes.contains(kEvaluations))
      evaluation_->restore(restored->meta.attributes.at(kEvaluations));
    first_ = built_->strategy->start(restored ? &*restored : nullptr, run_.resumes(),
                                     restored ? restored->meta.step : hooks_.first_step, wait);
    checkpoints_->begin(first_, restored.has_value());
    job_step_ = first_;
    if (input_.taken) take_batches(restored, wait);
    steps_->begin(first_, job_step_);
    report_->watch(*steps_);
  }

  void take_batches(const std::optional<CheckpointInfo>& restored, const WaitContext& wait) {
    job_step_ = run_.peers.leader() ? open_batch_queue(run_, input_, restored, wait) : 0;
    input_.taken->begin(first_);
  }

  /// Behind the last one of this worker; of a queue nobody knows before how many it takes.
  std::uint64_t last_step() const { return input_.taken ? UINT64_MAX : input_.total_steps; }

  bool is_complete() const {
    return steps_->done() >= last_step() || (steps_->input_ended() && steps_->idle());
  }

  void loop() {
    directory_.begin(run_.job);
    if (replaced_) replaced_->begin();
    report_->begin(first_, job_step_, input_.total_steps, input_.share, train_rows());
    checkpoints_->start_clock();
    grace_.resume();
    while (!is_complete() && !(steps_->stopping() && steps_->idle())) {
      // No step beyond the next checkpoint or evaluation is in flight when that is due.
      const std::uint64_t border = next_border();
      if (const auto outcome = steps_->advance(border)) {
        report_->record(*outcome);
        if (hooks_.step) hooks_.step(*outcome);
        user_hooks_->step(outcome->step, outcome->loss);
      }
      if (steps_->done() == border && steps_->idle() && !is_complete()) at_border();
    }
    grace_.pause();
    report_->finish();
  }

  std::uint64_t next_border() const {
    const std::uint64_t done = steps_->done();
    std::uint64_t border = last_step();
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
    if (steps_->input_ended()) attributes[kEndedEarly] = "the input has ended";
    checkpoints_->save(done, cursor(done), metrics, attributes, waits_.start());
    user_hooks_->checkpoint(done, checkpoints_->directory_of(done), metrics);
  }

  /// Before servers save their tables, so that what workers finish meanwhile is made again, and not left out.
  std::string cursor(std::uint64_t done) const {
    if (!input_.taken) return input_.batcher->cursor(Batcher::ticket_of(steps_->cursor()));
    return run_.peers.leader() ? batch_queue_cursor(input_, done, waits_.start()) : "";
  }

  TrainResult end() {
    steps_->cancel_input();
    bool terminated = steps_->stopping() && !is_complete() && !steps_->finished_early();
    const std::uint64_t done = steps_->done();
    // Whether the last checkpoint is among the best is to be known when it is written.
    if (!terminated && (run_.job.checkpoint().keep_best() > 0 || evaluation_->keeps_best())) measure(done);
    // With a queue the others' last steps may be behind this one's.
    if (input_.taken) checkpoints_->outdate();
    if (checkpoints_->enabled() && (done > first_ || input_.taken)) save();
    if (input_.taken) {
      input_.taken->leave(run_.peers.leader() && steps_->finished_early(), waits_.start());
      log_info("input: this worker took {} of the job's {} batches", input_.taken->finished(),
               input_.queue.total);
    }
    built_->strategy->finish_steps(waits_.start());
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
    const TrainResult all = result(terminated);
    directory_.end(all.to_json());
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
    result.examples = static_cast<std::int64_t>(result.steps) *
                      (input_.taken ? input_.queue.batch_rows : run_.job.input().global_batch_size());
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
  std::uint64_t first_ = 0;
  std::uint64_t job_step_ = 0;  // that it begins at
  std::string stopped_early_;   // why
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
