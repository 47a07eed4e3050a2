#include "worker/input/taken_batches.h"

#include <algorithm>

#include "base/log.h"
#include "base/random_id.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookForStop{50};  // for a request to stop, while a batch is waited for
constexpr milliseconds kAskAgain{50};
constexpr std::chrono::seconds kOneCall{5};

}  // namespace

TakenBatches::TakenBatches(std::shared_ptr<ps::BatchQueue> queue, TakenBatchesOptions options)
    : queue_(std::move(queue)), options_(std::move(options)), session_(random_id()) {}

TakenBatches::~TakenBatches() = default;

void TakenBatches::begin(std::uint64_t first_step) {
  first_ = first_step;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

/// A unit that no batch was made of is always there, for when the one at work ends.
bool TakenBatches::needs_unit() const {
  return !ended_ && std::ranges::none_of(units_, [](const Unit& unit) { return unit.given == 0; });
}

void TakenBatches::run(const std::stop_token& stop) {
  Clock::time_point heard = Clock::now();
  while (!stop.stop_requested()) {
    try {
      say(Word::Report,
          WaitContext::with_timeout(std::min<std::chrono::nanoseconds>(options_.deadline, kOneCall), stop));
      heard = Clock::now();
    } catch (const Error& error) {
      if (stop.stop_requested()) return;
      const bool may_come =
          error.code() == ErrorCode::Unavailable || error.code() == ErrorCode::DeadlineExceeded;
      std::unique_lock lock(mu_);
      if (!may_come || Clock::now() - heard >= options_.deadline) {
        error_ = capture_current_exception("input");
        changed_.notify_all();
        return;
      }
      changed_.wait_for(lock, stop, kAskAgain, [] { return false; });
      continue;
    }
    std::unique_lock lock(mu_);
    const bool asks = needs_unit() && must_wait_;
    changed_.wait_for(lock, stop, asks ? kAskAgain : options_.report,
                      [&] { return may_end_ || (needs_unit() && !must_wait_); });
  }
}

ps::QueueCall TakenBatches::next_call(Word word) {
  std::lock_guard lock(mu_);
  may_end_ = false;
  ps::QueueCall call{
      .worker = options_.worker, .session = session_, .number = ++number_, .life = life_, .held = {}};
  for (const Unit& unit : units_) call.held.push_back({unit.batches.id, unit.batches.first, unit.done});
  call.wants = word == Word::Report && needs_unit();
  call.leaves = word != Word::Report;
  call.ends = word == Word::End;
  return call;
}

void TakenBatches::hear(const ps::QueueCall& call, const ps::QueueAnswer& answer) {
  std::lock_guard lock(mu_);
  for (const ps::HeldUnit& told : call.held)
    std::erase_if(units_, [&](const Unit& unit) {
      return unit.batches.id == told.id && unit.batches.count == told.done;
    });
  const std::size_t before = units_.size();
  for (const std::uint64_t id : answer.revoked)
    std::erase_if(units_, [&](const Unit& unit) { return unit.batches.id == id; });
  if (units_.size() < before)
    log_warning("input: {} units of batches that this worker had are given to others",
                before - units_.size());
  life_ = answer.life;
  using Kind = ps::QueueAnswer::Kind;
  if (answer.kind == Kind::Unit) units_.push_back({answer.unit});
  must_wait_ = answer.kind == Kind::Wait || answer.kind == Kind::NotOpen;
  ended_ = ended_ || answer.kind == Kind::End;
  changed_.notify_all();
}

void TakenBatches::say(Word word, const WaitContext& wait) {
  std::lock_guard talking(talking_);
  const ps::QueueCall call = next_call(word);
  hear(call, queue_->talk(call, wait));
}

/// To the next step. REQUIRES: the lock.
bool TakenBatches::give_next() {
  for (Unit& unit : units_) {
    if (unit.given == unit.batches.count) continue;
    given_.push_back({unit.batches.id, unit.batches.first + unit.given++});
    changed_.notify_all();
    return true;
  }
  return false;
}

void TakenBatches::await(std::uint64_t step, const std::stop_token& stop) {
  std::unique_lock lock(mu_);
  while (step >= first_ + given_.size()) {
    if (stop.stop_requested()) throw Cancelled("input: cancelled");
    if (ended_) throw OutOfRange("input: all batches of the job are done");
    if (give_next()) continue;
    if (error_) throw_error(*error_);
    if (options_.stop.stop_requested()) throw OutOfRange("input: asked to stop while it waits for a batch");
    changed_.wait_for(lock, stop, kLookForStop, [] { return false; });
  }
}

std::uint64_t TakenBatches::batch_of(std::uint64_t step) const {
  std::lock_guard lock(mu_);
  if (step < first_ || step >= first_ + given_.size())
    throw Internal("input: step " + std::to_string(step) + " has no batch");
  return given_[step - first_].batch;
}

void TakenBatches::finish(std::uint64_t step) {
  std::lock_guard lock(mu_);
  if (step != first_ || given_.empty())
    throw Internal("input: step " + std::to_string(step) + " is not the one to be finished");
  for (Unit& unit : units_)
    if (unit.batches.id == given_.front().unit && ++unit.done == unit.batches.count && must_wait_) {
      may_end_ = true;  // others, or this worker, wait for no more than to hear of it
      changed_.notify_all();
    }
  given_.pop_front();
  ++first_;
  ++finished_;
}

std::optional<std::uint64_t> TakenBatches::next_taken(std::uint64_t batch) const {
  std::lock_guard lock(mu_);
  std::optional<std::uint64_t> next;
  for (const Unit& unit : units_) {
    const std::uint64_t first = unit.batches.first + unit.done, end = unit.batches.first + unit.batches.count;
    if (batch >= end || first == end) continue;
    next = std::min(next.value_or(UINT64_MAX), std::max(batch, first));
  }
  return next;
}

std::string TakenBatches::state(const WaitContext& wait) {
  say(Word::Report, wait);
  return queue_->state(wait);
}

void TakenBatches::leave(bool ends, const WaitContext& wait) {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  try {
    say(ends ? Word::End : Word::Leave, wait);
  } catch (const Error& error) {
    log_warning("input: {}", error.message());
  }
}

std::uint64_t TakenBatches::finished() const {
  std::lock_guard lock(mu_);
  return finished_;
}

}  // namespace braid::worker
