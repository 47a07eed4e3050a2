#include "worker/run/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/schema/table.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/run/resumed_job.h"
#include "worker/strategies/strategy.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

constexpr const char* kInputCursor = "worker-0";

}  // namespace

RunCheckpoints::RunCheckpoints(const RunContext& run, const StartedRun& started, const BuiltStep& built,
                               const Metric& metric, bool keeps_best)
    : run_(run),
      id_(started.id.value_or(CheckpointRun{})),
      continued_(started.continued),
      plan_hash_(built.plan_hash) {
  for (const VariableInfo& variable : list_variables(built.training.graph)) {
    if (std::string former = former_name(built.training.graph, variable); !former.empty())
      former_names_[variable.name] = std::move(former);
    if (variable.trainable) trained_.insert(variable.name);
  }
  const proto::Checkpoint& from = run.job.checkpoint();
  if (from.directory().empty()) return;
  checkpointer_ = std::make_unique<Checkpointer>(from.directory(), id_, from.keep(), run.job.name(),
                                                 plan_hash_, run.runtime, *built.strategy);
  if (const std::size_t count = std::max<std::size_t>(from.keep_best(), keeps_best ? 1 : 0); count > 0)
    checkpointer_->keep_best(count, metric.name(), higher_is_better(metric.kind).value_or(true));
}

std::optional<CheckpointInfo> RunCheckpoints::restore(const Batcher* batcher) {
  return run_.resumes() ? restore_newest(batcher, run_.options.accepts_changes) : std::nullopt;
}

std::optional<CheckpointInfo> RunCheckpoints::go_back(const Batcher* batcher) {
  return restore_newest(batcher, true);
}

void RunCheckpoints::take_changes(const CheckpointInfo& from, const std::vector<std::string>& changes,
                                  bool accepted) const {
  if (changes.empty()) return;
  const std::string all = fmt::format("{}", fmt::join(changes, "; "));
  if (accepted)
    return log_warning("the job is not that of the checkpoint, so bits differ from an uninterrupted run: {}",
                       all);
  throw InvalidArgument(
      fmt::format("--resume: the job is not that of '{}': {}. A resumed run has the bits of one that was not "
                  "interrupted, and would not with these changes. Take them back, begin a new run in another "
                  "checkpoint.directory, or accept them: --accept-changes (Python: fit(resume=\"changed\"))",
                  from.directory.string(), all));
}

std::vector<std::string> RunCheckpoints::changes(const CheckpointInfo& from, const Batcher* batcher) const {
  std::vector<std::string> all = job_changes(from.meta, run_.job);
  const std::string& cursor = from.meta.cursors.at(kInputCursor);
  if (!batcher || cursor.find(' ') == std::string::npos) return all;  // of another program
  const bool told = from.meta.attributes.contains(kResumedSeed);
  for (std::string& change : cursor_changes(cursor, batcher->cursor(Batcher::ticket_of(cursor)), !told))
    all.push_back(std::move(change));
  return all;
}

std::optional<CheckpointInfo> RunCheckpoints::restore_newest(const Batcher* batcher, bool accepts_changes) {
  if (!checkpointer_) return std::nullopt;
  std::optional<CheckpointInfo> found = checkpointer_->newest();
  if (!found) return std::nullopt;
  const std::uint64_t step = found->meta.step;
  const std::uint64_t ticket = Batcher::ticket_of(found->meta.cursors.at(kInputCursor));
  if (ticket != step)
    throw DataLoss("checkpoint '" + found->directory.string() + "': its input cursor is at batch " +
                   std::to_string(ticket) + ", its step is " + std::to_string(step));
  // A worker's share of files or rows is another one where there are other numbers of workers.
  const bool shares = run_.job.input().shard() != proto::Input::ALL;
  take_changes(*found, changes(*found, shares ? nullptr : batcher), accepts_changes);
  std::vector<std::string> missing = checkpointer_->restore_local(*found, former_names_);
  std::erase_if(missing, [&](const std::string& name) { return !trained_.contains(name); });
  for (std::string& name : missing) name = "the model has a variable '" + name + "' that was not there";
  take_changes(*found, missing, accepts_changes);
  if (shares && batcher)
    if (const auto moved = cursor_changes(found->meta.cursors.at(kInputCursor), batcher->cursor(ticket));
        !moved.empty())
      log_warning("the input differs from the checkpoint's: {}", fmt::join(moved, "; "));
  // It is the leader's, and of an elastic job of as many workers as there were.
  if (run_.peers.leader() && !run_.options.elastic && found->meta.plan_hash != plan_hash_)
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
    std::map<std::string, std::string> all = resumed_attributes(run_.job);
    all.insert(attributes.begin(), attributes.end());
    checkpointer_->save(done, cursor, metrics, all, wait);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    run_.monitor.record_checkpoint(done, took.count());
  }
  saved_ = done;
  saved_at_ = std::chrono::steady_clock::now();
}

}  // namespace braid::worker
