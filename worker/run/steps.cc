#include "worker/run/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/runtime.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"
#include "worker/job/schedule.h"
#include "worker/run/hooks.h"
#include "worker/strategies/kept_rows.h"
#include "worker/strategies/step_services.h"
#include "worker/watch/monitor.h"

namespace braid::worker {

TrainingSteps::TrainingSteps(const RunContext& run, BuiltStep& built, const RunInput& input,
                             const RunWaits& waits, StopGrace& grace)
    : run_(run),
      waits_(waits),
      grace_(grace),
      built_(built),
      input_(input),
      seed_(random_seed(run.job, row_reader(run.job, run.peers.rank, run.peers.world).rank)),
      instance_(std::move(built.instance)),
      padding_(built.feeds.batch()) {}

void TrainingSteps::begin(std::uint64_t first, std::uint64_t job_step) {
  next_ = done_ = first;
  job_step_ = job_step;
  if (!run_.job.input().has_follow()) first_step_.emplace("the first step");
  if (const KeptRows* cache = run_.runtime.services().find<KeptRows>())
    cache->publish(run_.monitor.registry());
  if (!run_.job.staging().enabled()) return;
  make_stage();
  stage_->start(first);
}

void TrainingSteps::make_stage() {
  Trace* const trace = run_.runtime.trace();
  for (int t = 0; trace && t < stage_options(run_.job).num_threads; ++t)
    trace->track("stage" + std::to_string(t));
  stage_ = built_.input->make_stage([trace](int thread, const StageInterval& interval) {
    if (trace && trace->recording())
      trace->track("stage" + std::to_string(thread))
          .add({"make batch", interval.begin, interval.end, interval.ticket});
  });
  stage_metrics_ = std::make_unique<StageMetrics>(run_.monitor.registry(), *stage_);
}

std::unique_ptr<Stage::Pause> TrainingSteps::pause_input() {
  return stage_ ? std::make_unique<Stage::Pause>(*stage_) : nullptr;
}

void TrainingSteps::cancel_input() {
  if (stage_) stage_->cancel();
}

std::optional<StepOutcome> TrainingSteps::advance(std::uint64_t border) {
  if (outgrown_ && !stopping_ && idle()) make_room();
  while (!stopping_ && next_ < border && instance_->in_flight() < built_.steps_in_flight && may_take() &&
         start_step()) {
  }
  if (idle()) return std::nullopt;
  return finish_step();
}

bool TrainingSteps::may_take() const {
  return idle() || !(run_.job.input().has_follow() || input_.taken) || (stage_ && stage_->stats().ready > 0);
}

void TrainingSteps::make_room() {
  if (stage_) stage_->stop();
  instance_.reset();
  built_.grow();
  instance_ = std::move(built_.instance);
  if (stage_) stage_->start(next_);
  outgrown_ = false;
}

std::optional<Batch> TrainingSteps::next_batch() {
  if (outgrown_ || ended_) return std::nullopt;
  try {
    return take_batch();
  } catch (const OutOfRange& end) {
    // Whoever asked this process to stop ended the wait for rows; else there are no more.
    ended_ = !run_.stop.requested();
    stopping_ = true;
    log_info("step {}: {}", next_, end.message());
    return std::nullopt;
  } catch (const InvalidArgument& error) {
    if (!input_.batcher->outgrown()) throw;
    if (!built_.can_grow())
      throw InvalidArgument(fmt::format(
          "{}; room grows by itself with one worker of LOCAL or ALLREDUCE, and this is {} with {}",
          error.message(), built_.strategy->name(), run_.peers.world));
    outgrown_ = true;
    return std::nullopt;
  }
}

Batch TrainingSteps::take_batch() {
  if (!built_.feeds.look_ahead()) return wait_for_batch();
  if (!ahead_ && !why_nothing_ahead_) look_ahead();
  if (!ahead_) std::rethrow_exception(std::exchange(why_nothing_ahead_, nullptr));
  Batch batch = std::move(*ahead_);
  look_ahead();
  return batch;
}

/// What goes wrong with it is of its own step: the one before still runs.
void TrainingSteps::look_ahead() {
  ahead_.reset();
  try {
    ahead_ = wait_for_batch();
  } catch (...) {
    why_nothing_ahead_ = std::current_exception();
  }
}

Batch TrainingSteps::wait_for_batch() {
  const Runtime::InputWait waiting(run_.runtime);
  return stage_ ? stage_->take(waits_.input())
                : built_.input->make({.ticket = next_, .thread = 0, .stop = {}});
}

void TrainingSteps::run_before_first(const Batch& batch) {
  StepRequest request;
  request.params.step = next_;
  request.params.seed = seed_;
  request.feeds = built_.feeds.of_next(batch);
  request.keep_alive = batch.block;
  lost_peers_ = true;
  built_.strategy->begin_step(next_, waits_.peers());
  try {
    built_.before_first->run(std::move(request), waits_.step());
  } catch (...) {
    built_.strategy->fail_step(next_);
    throw;
  }
  built_.strategy->end_step(next_);
  lost_peers_ = false;
  built_.before_first.reset();
}

bool TrainingSteps::start_step() {
  const auto before = std::chrono::steady_clock::now();
  std::optional<Batch> made = next_batch();
  if (!made) return false;
  Batch& batch = *made;
  input_wait_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  padding_.count(batch);
  StepRequest request;
  request.params.step = next_;
  request.params.learning_rate =
      learning_rate(run_.job, run_.options.hooks, job_step_of(next_), input_.total_steps);
  request.params.grad_scale = built_.strategy->gradient_scale();
  request.params.seed = seed_;
  if (built_.before_first) run_before_first(batch);
  // Behind the last batch nobody looks at what is exchanged for the next one.
  const Batch& behind = ahead_ ? *ahead_ : batch;
  request.feeds = built_.feeds.of(batch, behind);
  request.keep_alive =
      std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(batch.block, behind.block);
  begin_with_peers(std::move(request));
  cursors_.push_back(std::move(batch.cursor));
  ++next_;
  return true;
}

StepOutcome TrainingSteps::finish_step() {
  const StepResult result = step_result();
  first_step_.reset();
  job_step_ = input_.taken ? std::max(job_step_, job_step_of(result.step)) : result.step;
  if (input_.taken) input_.taken->finish(result.step);
  cursor_ = std::move(cursors_.front());
  cursors_.pop_front();
  grace_.step_ended(result.seconds);
  ++done_;
  const TrainingGraph& training = built_.training;
  const bool hears = training.stop_votes.valid();
  const float votes = hears ? result.fetches[1].data<float>()[0] : 0;
  const bool asked = wants_stop(votes) || (!(hears && training.votes_for_others) && run_.stop.requested());
  if (asked || wants_finish(votes)) {
    finished_early_ = !asked && (finished_early_ || !stopping_);
    stopping_ = true;
  }
  leaves_world_ = !asked && !finished_early_ && (leaves_world_ || wants_next_world(votes));
  stopping_ = stopping_ || leaves_world_;
  std::size_t next = hears ? 2 : 1;
  const bool skipped = training.skipped.valid() && result.fetches[next++].data<float>()[0] != 0;
  StepOutcome outcome{result.step, result.fetches[0].data<float>()[0], result.seconds, skipped, job_step_};
  if (training.dropped.valid())
    outcome.dropped = static_cast<std::int64_t>(result.fetches[next].data<float>()[0]);
  return outcome;
}

std::vector<StepOutcome> TrainingSteps::settle() {
  stopping_ = true;
  std::vector<StepOutcome> ended;
  try {
    while (!idle()) ended.push_back(finish_step());
  } catch (const Error& error) {
    log_debug("step {}: {}", done_, error.message());
  }
  return ended;
}

void TrainingSteps::finish_early() {
  if (built_.training.stop_votes.valid()) {
    run_.runtime.services().find<StepServices>()->finish = true;
    return;
  }
  finished_early_ = !stopping_;
  stopping_ = true;
}

void TrainingSteps::begin_with_peers(StepRequest request) {
  lost_peers_ = true;
  built_.strategy->begin_step(next_, waits_.peers());
  instance_->start(std::move(request), waits_.step());
  lost_peers_ = false;
}

StepResult TrainingSteps::step_result() {
  StepResult result;
  lost_peers_ = true;
  try {
    result = instance_->finish(waits_.step());
  } catch (...) {
    built_.strategy->fail_step(done_);
    throw;
  }
  built_.strategy->end_step(result.step);
  lost_peers_ = false;
  return result;
}

std::uint64_t TrainingSteps::job_step_of(std::uint64_t step) const {
  if (!input_.taken) return step;
  return input_.taken->batch_of(step) / static_cast<std::uint64_t>(input_.queue.workers);
}

}  // namespace braid::worker
