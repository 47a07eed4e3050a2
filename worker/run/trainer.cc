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
#include "comm/communicator.h"
#include "engine/exec/runtime.h"
#include "proto/job.pb.h"
#include "worker/elastic/elastic_world.h"
#include "worker/process/stop_grace.h"
#include "worker/run/batch_queue.h"
#include "worker/run/hooks.h"
#include "worker/run/run_directory.h"
#include "worker/run/user_hooks.h"
#include "worker/run/world_parts.h"

namespace braid::worker {
namespace {

const RunHooks kNoHooks;

/// Everything of one run, in the order in which it is made, but for the report; destroyed in reverse.
class Run {
 public:
  explicit Run(const RunContext& run)
      : run_(run),
        elastic_(run.options.elastic),
        hooks_(run.options.hooks ? *run.options.hooks : kNoHooks),
        grace_(run.stop),
        waits_(run, grace_),
        parts_(run, waits_, grace_, [this](const StepOutcome& outcome) { tell(outcome); }) {}

  TrainResult train() {
    try {
      prepare();
    } catch (const Error& error) {
      tell_refusal(run_.peers, error);
      if (elastic_ && elastic_->ended_in_order()) return never_taken_in(run_.job);
      tell_elastic(error);
      if (was_asked_to_stop(run_.stop, error)) return stopped_before_steps(run_.job, error);
      leave_others(error);
      throw;
    }
    try {
      make_steps();
      return leaves_alone_ ? leave() : end();
    } catch (const Error& error) {
      tell_elastic(error);
      leave_others(error);
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
                                    parts_.steps ? parts_.steps->done() : parts_.holding().step,
                                    error.message()));
    } catch (...) {
      report_->write_trace();
      throw;
    }
  }

  void prepare() {
    started_ = start_run(run_.job, run_.options.start, run_.peers, waits_.first());
    directory_ = std::move(started_.directory);
    replaced_ = std::move(started_.replaced);
    if (run_.options.speaks()) log_into_run_directory(run_.job, run_.options.role);
    report_.emplace(run_);
    user_hooks_ = std::make_unique<UserHooks>(run_);
    parts_.load(started_, *report_);
    parts_.enter();
  }

  // ------------------------------------------------------------------------------------------------- worlds

  /// The same behind steps: who is asked to stop meanwhile still has the last ones.
  void enter_or_leave() {
    try {
      parts_.enter();
    } catch (const Error& error) {
      const bool stops = run_.stop.requested() || error.code() == ErrorCode::Cancelled;
      if (!stops || !parts_.steps || !may_leave()) throw;
      log_info("asked to stop between two worlds: {}", error.message());
      leaves_alone_ = !elastic_->leads();
      stops_between_ = !leaves_alone_;
    }
  }

  /// Whose part of the state is in a checkpoint is not needed; the leader saves what it holds.
  bool may_leave() const { return parts_.holding().whole || (parts_.spreads_state() && !elastic_->leads()); }

  /// Whether the run is over in this world; else another one goes on with it.
  bool loop_in_world() {
    try {
      loop();
      if (!elastic_ || !parts_.steps->leaves_world() || is_complete()) return true;
      if (parts_.spreads_state()) save_for_next_world();
    } catch (const Error& error) {
      const bool lost_peers = parts_.steps->lost_peers() || (parts_.spreads_state() && meets_);
      if (!elastic_ || !lost_peers || !ended_a_wait(error)) throw;
      log_warning("step {}: {}", parts_.steps->done(), error.message());
    }
    grace_.pause();
    parts_.hold_state();
    report_->pause();
    if (!run_.stop.requested()) return false;
    if (!may_leave()) throw Unavailable("asked to stop, and the last step has failed half way");
    leaves_alone_ = !elastic_->leads();
    return elastic_->leads();  // it saves, and ends the job for all
  }

  /// Between GPUs the others would wait for this worker until their deadline, and its communicator's orderly
  /// end for them.
  void leave_others(const Error& error) {
    const Peers& peers = run_.peers;
    if (elastic_ || run_.options.replicas || peers.world == 1 || !peers.communicator ||
        !run_.runtime.device() || ended_a_wait(error))
      return;
    log_error("this worker ends, and the others with it: {}", error.message());
    peers.communicator->abort();
  }

  void tell_elastic(const Error& error) {
    if (elastic_ && elastic_->leads() && !elastic_->is_over())
      elastic_->end(make_error(error.code(), error.message()));
  }

  // -------------------------------------------------------------------------------------------------- steps

  bool is_complete() const {
    return parts_.steps->done() >= parts_.last_step() ||
           (parts_.steps->input_ended() && parts_.steps->idle());
  }

  void loop() {
    if (parts_.begun()) {
      report_->go_on(parts_.input.share);
    } else {
      directory_.begin(run_.job);
      if (replaced_) replaced_->begin();
      report_->begin(parts_.first(), parts_.job_step(), parts_.input.total_steps, parts_.input.share,
                     train_rows());
      parts_.checkpoints->start_clock();
    }
    parts_.begin();
    meets_ = false;
    grace_.resume();
    while (!is_complete() && !(parts_.steps->stopping() && parts_.steps->idle())) {
      // No step beyond the next checkpoint or evaluation is in flight when that is due.
      const std::uint64_t border = next_border();
      if (const auto outcome = parts_.steps->advance(border)) {
        tell(*outcome);
      }
      if (parts_.steps->done() == border && parts_.steps->idle() && !is_complete()) at_border();
    }
  }

  void tell(const StepOutcome& outcome) {
    report_->record(outcome);
    if (hooks_.step) hooks_.step(outcome);
    user_hooks_->step(outcome.step, outcome.loss);
  }

  std::uint64_t next_border() const {
    const std::uint64_t done = parts_.steps->done();
    std::uint64_t border = parts_.last_step();
    for (const std::uint64_t every : {parts_.checkpoints->interval(), parts_.evaluation->interval()})
      if (every > 0) border = std::min(border, (done / every + 1) * every);
    return parts_.checkpoints->is_due_by_clock(done, parts_.steps->next())
               ? std::min(border, parts_.steps->next())
               : border;
  }

  std::unique_ptr<Stage::Pause> stand_still() {
    grace_.pause();
    report_->pause();
    meets_ = true;
    return parts_.steps->pause_input();
  }

  /// All workers, whose parts those of the next world read.
  void save_for_next_world() {
    const std::unique_ptr<Stage::Pause> pause = stand_still();
    save();
    parts_.built->strategy->meet_at_border(waits_.peers());
  }

  void at_border() {
    const std::unique_ptr<Stage::Pause> pause = stand_still();
    if (parts_.evaluation->is_due(parts_.steps->done())) {
      measure(parts_.steps->done());
      if (const auto& measured = parts_.evaluation->last())
        report_->evaluated(parts_.steps->done(), parts_.evaluation->metric(), *measured);
      tell_evaluation();
      stop_early_or_go_on();
    }
    if (parts_.evaluation->helps_at(parts_.steps->done())) parts_.evaluation->help(parts_.steps->done());
    const bool is_best = parts_.evaluation->keeps_best() &&
                         parts_.evaluation->has_measured(parts_.steps->done()) &&
                         parts_.evaluation->improved();
    if (parts_.checkpoints->is_due(parts_.steps->done(), parts_.steps->next()) ||
        (is_best && parts_.checkpoints->enabled()))
      save();
    if (hooks_.border) hooks_.border(parts_.steps->done());
    parts_.built->strategy->meet_at_border(waits_.peers());
    meets_ = false;
    report_->resume();
    grace_.resume();
  }

  void measure(std::uint64_t step) {
    if (parts_.evaluation->measures()) report_->evaluating(step);
    parts_.evaluation->measure(step);
  }

  /// Of all workers.
  std::int64_t train_rows() const {
    const Table& train = *parts_.input.data.train;
    return std::max(train.rows, train.rows_of_all);
  }

  void tell_evaluation() const {
    if (hooks_.evaluated && parts_.evaluation->has_measured(parts_.steps->done()) &&
        parts_.evaluation->last())
      hooks_.evaluated(parts_.steps->done(), *parts_.evaluation->last());
  }

  void stop_early_or_go_on() {
    if (!parts_.evaluation->has_measured(parts_.steps->done()) || !stopped_early_.empty()) return;
    stopped_early_ = parts_.evaluation->reason_to_stop();
    if (stopped_early_.empty()) return;
    log_info("step {}: training stops early: {} {}", parts_.steps->done(), parts_.evaluation->metric().name(),
             stopped_early_);
    parts_.steps->finish_early();
  }

  void save() {
    const std::uint64_t done = parts_.steps->done();
    std::map<std::string, double> metrics = parts_.evaluation->metrics(done);
    metrics["loss"] = report_->loss();
    std::map<std::string, std::string> attributes;
    if (parts_.evaluation->keeps_best()) attributes[kEvaluations] = parts_.evaluation->state();
    if (parts_.input.data.followed.feed)
      attributes[kInputFiles] = text_of(parts_.input.data.followed.feed->taken());
    if (parts_.steps->finished_early()) attributes[kEndedEarly] = stopped_early_;
    if (parts_.steps->input_ended()) attributes[kEndedEarly] = "the input has ended";
    parts_.checkpoints->save(done, cursor(done), metrics, attributes, waits_.start());
    user_hooks_->checkpoint(done, parts_.checkpoints->directory_of(done), metrics);
  }

  /// Before servers save their tables, so that what workers finish meanwhile is made again, and not left out.
  std::string cursor(std::uint64_t done) const {
    if (!parts_.input.taken) return parts_.input.batcher->cursor(Batcher::ticket_of(parts_.steps->cursor()));
    return run_.peers.leader() ? batch_queue_cursor(parts_.input, done, waits_.start()) : "";
  }

  TrainResult end() {
    parts_.steps->cancel_input();
    bool terminated = parts_.steps->stopping() && !is_complete() && !parts_.steps->finished_early();
    const std::uint64_t done = parts_.steps->done();
    // Whether the last checkpoint is among the best is to be known when it is written.
    // And where all workers measure, before they wait for the leader.
    if (!terminated && (run_.job.checkpoint().keep_best() > 0 || parts_.evaluation->keeps_best() ||
                        parts_.evaluation->is_shared())) {
      measure(done);
      parts_.evaluation->help(done);
    }
    // With a queue the others' last steps may be behind this one's.
    if (parts_.input.taken) parts_.checkpoints->outdate();
    if (parts_.checkpoints->enabled() && (done > parts_.first() || parts_.input.taken)) save();
    if (parts_.input.taken) leave_queue();
    finish_steps();
    if (!terminated) {
      measure(done);
      if (parts_.evaluation->has_measured(done) && parts_.evaluation->last())
        report_->evaluated(done, parts_.evaluation->metric(), *parts_.evaluation->last());
      terminated = parts_.evaluation->measures() && !parts_.evaluation->has_measured(done);
    }
    report_->end(done, terminated);
    report_->write_trace();
    if (!run_.options.hooks && run_.options.speaks() && (run_.peers.leader() || run_.peers.world > 1))
      report_->print_streams();
    if (hooks_.ended) {
      if (!terminated) tell_evaluation();
      if (run_.peers.leader()) parts_.built->strategy->refresh_variables(waits_.start());
      hooks_.ended(result(terminated), run_.runtime.variables());
    }
    parts_.built->strategy->shut_down(terminated, waits_.start());
    if (elastic_)
      elastic_->end(terminated ? make_error(ErrorCode::Cancelled, "the leader was asked to stop") : nullptr);
    const TrainResult all = result(terminated);
    directory_.end(all.to_json());
    user_hooks_->end(all);
    return all;
  }

  void leave_queue() {
    TakenBatches& taken = *parts_.input.taken;
    taken.leave(run_.peers.leader() && parts_.steps->finished_early(), waits_.start());
    log_info("input: this worker took {} of the job's {} batches", taken.finished(),
             parts_.input.queue.total);
  }

  /// All updates are made: in an elastic job a worker that is lost by now is none that is needed.
  void finish_steps() {
    try {
      parts_.built->strategy->finish_steps(waits_.start());
    } catch (const Error& error) {
      if (!elastic_ || !ended_a_wait(error)) throw;
      log_warning("the workers do not end together: {}", error.message());
    }
    if (elastic_) elastic_->finish();
  }

  /// Of an elastic job: the others go on.
  TrainResult leave() {
    parts_.steps->cancel_input();
    if (!elastic_->is_over()) log_info("asked to stop: the others go on from step {}", parts_.steps->done());
    elastic_->leave("it was asked to stop");
    report_->end(parts_.steps->done(), true);
    report_->write_trace();
    const TrainResult all = result(!elastic_->ended_in_order());
    user_hooks_->end(all);
    return all;
  }

  TrainResult result(bool terminated) const {
    TrainResult result;
    result.job = run_.job.name();
    result.steps = parts_.steps->done() - parts_.first();
    result.last_step = parts_.steps->done();
    result.loss = report_->loss();
    result.measured = parts_.evaluation->last();
    result.best = best();
    result.stopped_early = stopped_early_;
    result.dropped_tokens = report_->dropped_tokens();
    if (parts_.built->training.loss_scale) result.skipped_steps = report_->skipped_steps();
    result.examples =
        static_cast<std::int64_t>(result.steps) *
        (parts_.input.taken ? parts_.input.queue.batch_rows : run_.job.input().global_batch_size());
    result.seconds = report_->seconds();
    result.input_wait_seconds = parts_.steps->input_wait_seconds();
    result.padding_share = parts_.steps->padding();
    result.exit = terminated ? kExitTerminated : kExitSuccess;
    return result;
  }

  /// Where there were several evaluations to choose from.
  std::optional<TrainResult::Best> best() const {
    if (parts_.evaluation->interval() == 0 || !parts_.evaluation->best()) return std::nullopt;
    const EarlyStopping::Best& found = *parts_.evaluation->best();
    TrainResult::Best best{found.step, parts_.evaluation->metric().name(), found.value,
                           parts_.checkpoints->directory_of(found.step)};
    log_info("best: {} {:.4f} at step {}{}", best.metric, best.value, best.step,
             best.checkpoint.empty() ? "" : ": " + best.checkpoint);
    return best;
  }

  const RunContext run_;
  ElasticWorld* const elastic_;  // null: the workers are those that there are
  const RunHooks& hooks_;
  StopGrace grace_;
  const RunWaits waits_;
  RunDirectory directory_;
  std::unique_ptr<ReplacedRun> replaced_;
  std::unique_ptr<UserHooks> user_hooks_;
  StartedRun started_;
  WorldParts parts_;
  std::optional<RunReport> report_;  // goes before the steps, which the HTTP thread sees through it
  bool leaves_alone_ = false, stops_between_ = false;
  bool meets_ = false;         // between steps, where workers wait for each other's words
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

TrainResult train(const proto::Job& job, const TrainOptions& options, const Peers& peers, Runtime& runtime,
                  Monitor& monitor, const StopFlag& stop) {
  return Run({job, options, peers, runtime, monitor, stop}).train();
}

}  // namespace braid::worker
