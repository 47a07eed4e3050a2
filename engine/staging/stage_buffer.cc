#include "engine/staging/stage_buffer.h"

#include <algorithm>
#include <utility>

#include "base/brief_lock.h"
#include "base/cpu.h"
#include "engine/device/core_budget.h"

namespace braid {
namespace {

/// About what it takes to wake a thread whose core sleeps, in a virtual machine.
constexpr std::chrono::microseconds kLook{20};

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

StageBuffer::StageBuffer(const StageOptions& options, int capacity)
    : name_("stage '" + options.name + "'"),
      ordered_(options.ordered),
      num_clients_(options.num_clients),
      timeout_(options.timeout_millis),
      on_timeout_(options.on_timeout),
      capacity_(capacity),
      ring_(16) {}

// ------------------------------------------------------------------------------------------------ life

void StageBuffer::open(std::uint64_t first_ticket, int producers, std::vector<std::uint64_t> again) {
  std::lock_guard lock(mu_);
  begun_.clear();
  again_ = std::move(again);
  std::reverse(again_.begin(), again_.end());
  for (Entry& e : ring_) e = {};
  oldest_ = next_ = next_ticket_ = first_ticket;
  gone_ = 0;
  producers_ = producers;
  failed_ = false;
  stats_ = {};
  opened_ = counted_ = resumed_ = Clock::now();
  state_ = State::Open;
}

void StageBuffer::close() {
  std::lock_guard lock(mu_);
  if (state_ == State::Open) state_ = State::Closed;
  tell_producers();
  tell_takers();
}

void StageBuffer::cancel() {
  std::lock_guard lock(mu_);
  if (state_ == State::New || state_ == State::Cancelled) return;
  state_ = State::Cancelled;
  count_ready(-stats_.ready);
  for (Entry& e : ring_) e = {};
  tell_producers();
  tell_takers();
  turn_.notify_all();
}

bool StageBuffer::running() const {
  std::lock_guard lock(mu_);
  return state_ == State::Open && !failed_ && producers_ > 0;
}

bool StageBuffer::cancelled() const {
  std::lock_guard lock(mu_);
  return state_ == State::Cancelled;
}

std::uint64_t StageBuffer::next_untaken() const {
  std::lock_guard lock(mu_);
  return ordered_ ? oldest_ : next_ticket_;
}

std::vector<std::uint64_t> StageBuffer::left_out() const {
  std::lock_guard lock(mu_);
  std::vector<std::uint64_t> tickets(again_.rbegin(), again_.rend());
  tickets.insert(tickets.end(), begun_.begin(), begun_.end());
  std::sort(tickets.begin(), tickets.end());
  return tickets;
}

void StageBuffer::producer_added() {
  std::lock_guard lock(mu_);
  ++producers_;
}

void StageBuffer::producer_ended() {
  std::lock_guard lock(mu_);
  if (--producers_ == 0) tell_takers();
}

void StageBuffer::pause() {
  std::lock_guard lock(mu_);
  ++pauses_;
}

void StageBuffer::resume() {
  std::lock_guard lock(mu_);
  if (--pauses_ > 0) return;
  resumed_ = Clock::now();
  tell_producers();
}

void StageBuffer::set_capacity(int capacity) {
  std::lock_guard lock(mu_);
  capacity_ = capacity;
  tell_producers();
}

StageBufferStats StageBuffer::stats() const {
  std::lock_guard lock(mu_);
  StageBufferStats stats = stats_;
  if (state_ == State::New) return stats;
  const auto now = Clock::now();
  stats.ready_seconds += stats_.ready * seconds_between(counted_, now);
  stats.open_seconds = seconds_between(opened_, now);
  return stats;
}

// ------------------------------------------------------------------------------------------ positions

std::uint64_t StageBuffer::reserve(Entry::Kind kind) {
  if (next_ - oldest_ == ring_.size()) {
    std::vector<Entry> larger(ring_.size() * 2);
    for (std::uint64_t p = oldest_; p < next_; ++p) larger[p % larger.size()] = std::move(entry(p));
    ring_ = std::move(larger);
  }
  entry(next_).kind = kind;
  return next_++;
}

void StageBuffer::remove(std::uint64_t position) {
  entry(position).kind = Entry::Kind::Gone;
  ++gone_;
  for (; oldest_ < next_ && entry(oldest_).kind == Entry::Kind::Gone; ++oldest_) --gone_;
}

void StageBuffer::count_ready(int change) {
  const auto now = Clock::now();
  stats_.ready_seconds += stats_.ready * seconds_between(counted_, now);
  counted_ = now;
  stats_.ready += change;
  stats_.most_ready = std::max(stats_.most_ready, stats_.ready);
}

void StageBuffer::make_ready(std::uint64_t position, Batch batch) {
  Entry& e = entry(position);
  e.kind = Entry::Kind::Ready;
  e.batch = std::move(batch);
  count_ready(1);
  if (!ordered_ || position == oldest_) tell_takers();
}

void StageBuffer::fail_at(std::uint64_t position, ErrorPtr error) {
  Entry& e = entry(position);
  e.kind = Entry::Kind::Failed;
  e.error = std::move(error);
  failed_position_ = failed_ ? std::min(failed_position_, position) : position;
  failed_ = true;
  tell_producers();
  tell_takers();
}

bool StageBuffer::next_is_there() { return oldest_ < next_ && entry(oldest_).kind != Entry::Kind::Making; }

// -------------------------------------------------------------------------------------------- waiting

void StageBuffer::tell_producers() {
  changes_.fetch_add(1, std::memory_order_release);
  if (waiting_producers_ > 0) room_.notify_all();
}

void StageBuffer::tell_takers() {
  changes_.fetch_add(1, std::memory_order_release);
  if (waiting_takers_ > 0) ready_cv_.notify_all();
}

void StageBuffer::look_for_change(std::unique_lock<std::mutex>& lock) {
  const std::uint32_t seen = changes_.load(std::memory_order_relaxed);
  lock.unlock();
  CoreBudget::enter();
  const auto end = Clock::now() + kLook;
  constexpr int kOthers = 1;  // who makes the change
  while (changes_.load(std::memory_order_acquire) == seen && CoreBudget::may_spin(kOthers) &&
         Clock::now() < end)
    for (int i = 0; i < 32 && changes_.load(std::memory_order_acquire) == seen; ++i) cpu_relax();
  CoreBudget::leave();
  lock = brief_lock(mu_);
}

// ------------------------------------------------------------------------------------------ producers

std::optional<std::uint64_t> StageBuffer::begin() {
  const auto lock = brief_lock(mu_);
  if (state_ != State::Open || failed_) return std::nullopt;
  if (ordered_) {
    reserve(Entry::Kind::Making);
    return next_ticket_++;
  }
  std::uint64_t ticket = next_ticket_;
  if (again_.empty()) {
    ++next_ticket_;
  } else {
    ticket = again_.back();
    again_.pop_back();
  }
  begun_.insert(ticket);
  return ticket;
}

bool StageBuffer::has_room(std::uint64_t ticket) {
  const auto capacity = static_cast<std::uint64_t>(capacity_);
  if (!ordered_) return static_cast<std::uint64_t>(stats_.ready) < capacity;
  std::uint64_t before = ticket - oldest_;
  if (before < capacity || gone_ == 0) return before < capacity;
  for (std::uint64_t p = oldest_; p < ticket; ++p) before -= entry(p).kind == Entry::Kind::Gone;
  return before < capacity;
}

/// False when the timeout has passed.
bool StageBuffer::wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t ticket) {
  const auto begin = Clock::now();
  bool has_looked = false;
  while (state_ != State::Cancelled && !unreachable(ticket) && !has_room(ticket)) {
    // A pause ends with a notification, and a new time begins.
    const auto deadline = std::max(begin, resumed_) + timeout_;
    const bool limited = on_timeout_ != TimeoutPolicy::Wait && pauses_ == 0;
    if (limited && Clock::now() >= deadline) return false;
    if (!std::exchange(has_looked, true)) {
      look_for_change(lock);
      continue;
    }
    ++waiting_producers_;
    if (limited)
      room_.wait_until(lock, deadline);
    else
      room_.wait(lock);
    --waiting_producers_;
  }
  return true;
}

StageBuffer::Put StageBuffer::put(std::uint64_t ticket, Batch batch, double& waited_seconds) {
  std::unique_lock lock = brief_lock(mu_);
  if (state_ != State::Cancelled && !unreachable(ticket) && !has_room(ticket)) {
    const auto begin = Clock::now();
    const bool found = wait_for_room(lock, ticket);
    waited_seconds += seconds_between(begin, Clock::now());
    if (!found && on_timeout_ == TimeoutPolicy::Drop) {
      ++stats_.dropped;
      begun_.erase(ticket);
      if (ordered_) remove(ticket);
      tell_producers();
      return Put::Dropped;
    }
    if (!found) {
      fail_at(ordered_ ? ticket : reserve(Entry::Kind::Making),
              make_error(ErrorCode::DeadlineExceeded,
                         name_ + ": batch " + std::to_string(ticket) + " found no room for " +
                             std::to_string(timeout_.count()) + " ms (capacity " + std::to_string(capacity_) +
                             "): nobody takes"));
      return Put::Failed;
    }
  }
  if (state_ == State::Cancelled || unreachable(ticket)) return Put::Cancelled;
  make_ready(ordered_ ? ticket : reserve(Entry::Kind::Making), std::move(batch));
  return Put::Stored;
}

void StageBuffer::skip(std::uint64_t ticket) {
  std::lock_guard lock(mu_);
  begun_.erase(ticket);
  if (!ordered_ || state_ == State::Cancelled) return;
  remove(ticket);
  tell_producers();
  tell_takers();
}

void StageBuffer::fail(std::uint64_t ticket, ErrorPtr error) {
  std::lock_guard lock(mu_);
  if (state_ == State::Cancelled) return;
  fail_at(ordered_ ? ticket : reserve(Entry::Kind::Making), std::move(error));
}

bool StageBuffer::sleep(std::chrono::milliseconds time) {
  const auto until = Clock::now() + time;
  std::unique_lock lock(mu_);
  ++waiting_producers_;
  const bool ended = room_.wait_until(lock, until, [&] { return state_ != State::Open || failed_; });
  --waiting_producers_;
  return !ended;
}

// --------------------------------------------------------------------------------------------- takers

StageBuffer::Taken StageBuffer::take(const WaitContext& wait) {
  const WaitContext bounded = on_timeout_ == TimeoutPolicy::Wait ? wait : wait.at_most(timeout_);
  std::unique_lock lock = brief_lock(mu_);
  if (state_ == State::New)
    throw InvalidArgument(name_ +
                          " was not started: nothing would ever come (start it, or begin a prefetch)");
  if (clients_ >= num_clients_)
    wait_on(turn_, lock, bounded,
            name_ + ": waiting for one of num_clients=" + std::to_string(num_clients_) + " to take",
            [&] { return clients_ < num_clients_; });
  ++clients_;
  struct Turn {
    StageBuffer& buffer;
    ~Turn() {
      --buffer.clients_;
      buffer.turn_.notify_one();
    }
  } turn{*this};
  return take_next(lock, bounded);
}

StageBuffer::Taken StageBuffer::take_next(std::unique_lock<std::mutex>& lock, const WaitContext& wait) {
  Taken taken;
  const auto arrived = [&] { return next_is_there() || state_ == State::Cancelled || at_end(); };
  if (!arrived()) {
    ++stats_.late_takes;
    struct Waiting {
      StageBuffer& buffer;
      Clock::time_point begin;
      double& waited;
      ~Waiting() {
        --buffer.waiting_takers_;
        waited = seconds_between(begin, Clock::now());
        buffer.stats_.take_wait_seconds += waited;
      }
    };
    const auto begin = Clock::now();
    look_for_change(lock);
    ++waiting_takers_;
    const Waiting waiting{*this, begin, taken.waited_seconds};
    const auto limit = on_timeout_ == TimeoutPolicy::Wait
                           ? std::string()
                           : " (timeout_millis is " + std::to_string(timeout_.count()) + ")";
    wait_on(ready_cv_, lock, wait, name_ + ": waiting for batch " + std::to_string(oldest_) + limit, arrived);
  }
  if (state_ == State::Cancelled) throw Cancelled(name_ + " was cancelled");
  if (!next_is_there()) throw OutOfRange(name_ + ": end of input");
  Entry& e = entry(oldest_);
  if (e.kind == Entry::Kind::Failed) throw_error(*e.error);
  taken.batch = std::move(e.batch);
  e.batch = {};
  count_ready(-1);
  ++stats_.taken;
  begun_.erase(taken.batch.ticket);
  remove(oldest_);
  tell_producers();
  return taken;
}

}  // namespace braid
