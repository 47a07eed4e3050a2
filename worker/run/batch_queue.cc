#include "worker/run/batch_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

constexpr std::int64_t kTakeBatches = 16;
constexpr std::string_view kOf = " of ", kQueue = "queue ";

/// What decides which rows a batch has, but for their number: "rows=1500 seed=3".
std::string order_of(const Batcher& batcher) {
  std::string text = batcher.cursor(0);
  text.erase(0, text.find("rows="));
  if (const auto at = text.find(" batch="); at != std::string::npos)
    text.erase(at, text.find(' ', at + 1) - at);
  return text;
}

/// A checkpoint of steps that all workers took their part of is a queue of their batches.
std::string state_of_steps(std::uint64_t step, std::int64_t rows, std::int64_t global_batch) {
  return fmt::format("queue batch={} epoch_batches={} next={} open=", global_batch,
                     std::max<std::int64_t>(1, rows / global_batch), step);
}

std::string state_of(const RunInput& input, const proto::Job& job, const CheckpointInfo& restored) {
  const std::string& cursor = restored.meta.cursors.at("worker-0");
  const auto begins = cursor.find(kQueue);
  const std::string own = order_of(*input.batcher);
  if (begins == std::string::npos) {
    log_warning(
        "the checkpoint's input was shared by all workers at '{}': input.shard DYNAMIC goes on behind it",
        cursor);
    const Table& train = *input.data.train;
    return state_of_steps(restored.meta.step, std::max(train.rows, train.rows_of_all),
                          job.input().global_batch_size());
  }
  const auto ends = cursor.find(kOf, begins);
  if (const std::string order = ends == std::string::npos ? "" : cursor.substr(ends + kOf.size());
      order != own)
    log_warning("the input differs from the checkpoint's: its rows were '{}' and are '{}'", order, own);
  return cursor.substr(begins, ends - begins);
}

/// " next=40" -> 40
std::uint64_t next_of(const std::string& state) {
  constexpr std::string_view name = " next=";
  std::uint64_t next = 0;
  if (const auto at = state.find(name); at != std::string::npos)
    std::from_chars(state.data() + at + name.size(), state.data() + state.size(), next);
  return next;
}

}  // namespace

ps::QueuePlan batch_queue_plan(const proto::Job& job, std::int64_t epoch_batches, std::int64_t window_batches,
                               int workers) {
  ps::QueuePlan plan;
  plan.epoch_batches = static_cast<std::uint64_t>(epoch_batches);
  plan.batch_rows = job.input().global_batch_size() / workers;
  plan.workers = workers;
  plan.total =
      job.steps() > 0
          ? job.steps() * static_cast<std::uint64_t>(workers)
          : static_cast<std::uint64_t>(std::llround(job.epochs() * static_cast<double>(epoch_batches)));
  plan.total = std::max<std::uint64_t>(plan.total, 1);
  const std::int64_t asked = job.input().take_batches();
  plan.take = static_cast<std::uint64_t>(asked > 0 ? asked : std::max(kTakeBatches, window_batches));
  return plan;
}

std::uint64_t steps_of(const ps::QueuePlan& plan) {
  const auto workers = static_cast<std::uint64_t>(plan.workers);
  return (plan.total + workers - 1) / workers;
}

std::uint64_t open_batch_queue(const RunContext& run, const RunInput& input,
                               const std::optional<CheckpointInfo>& restored, const WaitContext& wait) {
  const std::string state = run.peers.queue->open(
      input.queue, restored ? state_of(input, run.job, *restored) : "", run.resumes() && !restored, wait);
  log_info("input: a queue gives out {} batches of {} rows, up to {} at a time", input.queue.total,
           input.queue.batch_rows, input.queue.take);
  return next_of(state) / static_cast<std::uint64_t>(input.queue.workers);
}

std::string batch_queue_cursor(const RunInput& input, std::uint64_t step, const WaitContext& wait) {
  return fmt::format("ticket={} {}{}{}", step, input.taken->state(wait), kOf, order_of(*input.batcher));
}

}  // namespace braid::worker
