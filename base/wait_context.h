// The deadline and the stop request that every blocking call takes. A call that waits without one is a
// defect. Thread rule: a WaitContext is a value; copies are independent and safe to hand to other threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string_view>

namespace braid {

struct WaitContext {
  using Clock = std::chrono::steady_clock;

  Clock::time_point deadline;
  std::stop_token stop;

  /// A context that ends `timeout` from now. A timeout too large for the clock means "far away", not
  /// overflow.
  static WaitContext with_timeout(std::chrono::nanoseconds timeout, std::stop_token stop = {});

  /// The same stop token with the earlier of this deadline and `timeout` from now.
  WaitContext at_most(std::chrono::nanoseconds timeout) const;

  bool expired() const { return Clock::now() >= deadline; }
  bool stopped() const { return stop.stop_requested(); }
  /// Time left, never negative.
  std::chrono::nanoseconds remaining() const;

  /// Throws Cancelled("<what>: cancelled") when a stop was requested, DeadlineExceeded("<what>: deadline
  /// exceeded") when the deadline has passed, else returns.
  void check(std::string_view what) const;
};

/// Waits on `cv` until `predicate()` holds. `what` says what is waited for and is part of the error text.
/// Throws: Cancelled, DeadlineExceeded (see WaitContext::check). The predicate is evaluated with the lock
/// held.
template <class Predicate>
void wait_on(std::condition_variable_any& cv, std::unique_lock<std::mutex>& lock, const WaitContext& context,
             std::string_view what, Predicate predicate) {
  if (predicate()) return;
  if (!cv.wait_until(lock, context.stop, context.deadline, predicate)) context.check(what);
}

}  // namespace braid
