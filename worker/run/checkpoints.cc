#include "worker/run/checkpoints.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/schema/table.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/strategies/strategy.h"
#include "worker/watch/monitor.h"

namespace braid::worker {

RunCheckpoints::RunCheckpoints(const RunContext& run, const StartedRun& started, const BuiltStep& built,
                               const Metric& metric, bool keeps_best)
    : run_(run),
      id_(started.id.value_or(CheckpointRun{})),
      continued_(started.continued),
      plan_hash_(built.plan_hash) {
  for (const VariableInfo& variable : list_variables(built.training.graph))
    if (std::string former = former_name(built.training.graph, variable); !former.empty())
      former_names_[variable.name] = std::move(former);
  const proto::Checkpoint& from = run.job.checkpoint();
  if (from.directory().empty()) return;
  checkpointer_ = std::make_unique<Checkpointer>(from.directory(), id_, from.keep(), run.job.name(),
                                                 plan_hash_, run.runtime, *built.strategy);
  if (const std::size_t count = std::max<std::size_t>(from.keep_best(), keeps_best ? 1 : 0); count > 0)
    checkpointer_->keep_best(count, metric.name(), higher_is_better(metric.kind).value_or(true));
}

std::optional<CheckpointInfo> RunCheckpoints::restore(const Batcher* batcher) {
  return run_.resumes() ? go_back(batcher) : std::nullopt;
}

std::optional<CheckpointInfo> RunCheckpoints::go_back(const Batcher* batcher) {
  if (!checkpointer_) return std::nullopt;
  std::optional<CheckpointInfo> found = checkpointer_->newest();
  if (!found) return std::nullopt;
  checkpointer_->restore_local(*found, former_names_);
  const std::uint64_t step = found->meta.step;
  const std::string& cursor = found->meta.cursors.at("worker-0");
  const std::uint64_t ticket = Batcher::ticket_of(cursor);
  if (ticket != step)
    throw DataLoss("checkpoint '" + found->directory.string() + "': its input cursor is at batch " +
                   std::to_string(ticket) + ", its step is " + std::to_string(step));
  if (batcher && cursor.find(' ') != std::string::npos && cursor != batcher->cursor(ticket))
    log_warning("the input differs from the checkpoint's: it was at '{}' and continues at '{}'", cursor,
                batcher->cursor(ticket));
  if (run_.peers.leader() && found->meta.plan_hash != plan_hash_)  // it is the leader's
    log_warning(
        "the plan differs from the checkpoint's (another build, job or number of streams): bits may "
        "differ from an uninterrupted run");
  log_info("resumed at step {} from {}", step, found->directory.string());
  return found;
}

void RunCheckpoints::begin(std::uint64_t first, bool restored) {
  first_ = first;
  if (run_.resumes() && !restored)
    log_warning("--resume: no checkpoint{} in '{}', starting at step {}",
                continued_ ? " of " + id_.describe() : "", run_.job.checkpoint().directory(), first);
}

void RunCheckpoints::continue_from(const RunCheckpoints& earlier) {
  first_ = earlier.first_;
  saved_ = earlier.saved_;
  saved_at_ = earlier.saved_at_;
}

void RunCheckpoints::start_clock() { saved_at_ = std::chrono::steady_clock::now(); }

std::string RunCheckpoints::directory_of(std::uint64_t step) const {
  return checkpointer_ ? checkpointer_->directory_of(step).string() : "";
}

std::uint64_t RunCheckpoints::interval() const {
  return checkpointer_ ? run_.job.checkpoint().every_steps() : 0;
}

bool RunCheckpoints::is_due(std::uint64_t done, std::uint64_t next) const {
  return (interval() > 0 && done % interval() == 0) || is_due_by_clock(done, next);
}

bool RunCheckpoints::is_due_by_clock(std::uint64_t done, std::uint64_t next) const {
  const double every = run_.job.checkpoint().every_seconds();
  if (!checkpointer_ || !run_.peers.leader() || every <= 0 || next <= first_ || saved_ == done) return false;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_at_;
  return since.count() >= every;
}

void RunCheckpoints::save(std::uint64_t done, const std::string& cursor,
                          const std::map<std::string, double>& metrics,
                          const std::map<std::string, std::string>& attributes, const WaitContext& wait) {
  if (run_.peers.leader() && saved_ != done) {
    run_.monitor.set_state("saving");
    const auto begin = std::chrono::steady_clock::now();
    checkpointer_->save(done, cursor, metrics, attributes, wait);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    run_.monitor.record_checkpoint(done, took.count());
  }
  saved_ = done;
  saved_at_ = std::chrono::steady_clock::now();
}

}  // namespace braid::worker
