#include "engine/exec/step_board.h"

#include <algorithm>

namespace braid {

void StepBoard::fail(std::uint64_t sequence, ErrorPtr error) noexcept {
  {
    StepSlot& failed = slot(sequence);
    std::lock_guard lock(failed.mu);
    if (!failed.error) failed.error = std::move(error);
  }
  std::uint64_t first = first_failed_.load(std::memory_order_relaxed);
  while (sequence < first && !first_failed_.compare_exchange_weak(first, sequence)) {
  }
  request_stop(sequence);
}

ErrorPtr StepBoard::error_of(std::uint64_t sequence) {
  StepSlot& s = slot(sequence);
  std::lock_guard lock(s.mu);
  return s.error;
}

void StepBoard::request_stop(std::uint64_t sequence) noexcept {
  for (std::uint64_t s = sequence; s < sequence + slots_.size(); ++s) {
    StepSlot& candidate = slot(s);
    std::optional<std::stop_source> stop;
    {
      std::lock_guard lock(candidate.mu);
      if (candidate.running && candidate.sequence == s) stop = candidate.stop;
    }
    // Without the lock: what a kernel has hung on the stop may complete an op of the same step.
    if (stop) stop->request_stop();
  }
}

void StepBoard::part_done(std::uint64_t sequence) noexcept {
  StepSlot& s = slot(sequence);
  if (s.parts_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  s.last_end.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  s.done.signal(sequence + 1);
}

void StepBoard::begin(std::uint64_t sequence, StepRequest request, const WaitContext& wait, int parts) {
  StepSlot& s = slot(sequence);
  s.params = request.params;
  s.feeds = std::move(request.feeds);
  s.keep_alive = std::move(request.keep_alive);
  s.results = std::move(request.results);
  s.wait.deadline = wait.deadline;
  s.parts_left.store(parts, std::memory_order_relaxed);
  s.wrote.store(false, std::memory_order_relaxed);
  s.first_issue.store(0, std::memory_order_relaxed);
  s.last_end.store(0, std::memory_order_relaxed);
  {
    std::lock_guard lock(s.mu);
    s.error.reset();
    s.sequence = sequence;
    s.running = true;
    if (s.stop.stop_requested())
      s.stop = std::stop_source();  // its user stopped an earlier step in this slot
    s.wait.stop = s.stop.get_token();
  }
  s.on_user_stop.emplace(wait.stop, StepSlot::Stop{&s.stop});
  if (failed(sequence)) s.stop.request_stop();
}

void StepBoard::release(std::uint64_t sequence) {
  StepSlot& s = slot(sequence);
  s.on_user_stop.reset();
  s.feeds.clear();
  s.keep_alive.reset();
  s.results.reset();
  std::lock_guard lock(s.mu);
  s.running = false;
}

void StepBoard::reset() { first_failed_.store(kNone, std::memory_order_relaxed); }

}  // namespace braid
