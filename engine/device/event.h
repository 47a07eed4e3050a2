// A host event: a counter that only grows. Work number n of a kind (step n of a node) signals n + 1, and
// whoever needs it waits until the counter has reached that. So one event serves every step, nothing is ever
// reset, and a signal for a later step satisfies waits for earlier ones.
//
// Cost: a signal without sleepers is one atomic operation, a wait that is already satisfied one load.
// Memory order: what happened before signal(n) is visible after a wait for n.
// Thread rule: everything from any thread. REQUIRES: the event outlives signals that are still returning.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/wait_context.h"

namespace braid {

enum class WaitStatus { Reached, Deadline, Stopped };

class alignas(64) Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool reached(std::uint64_t value) const noexcept { return value_.load(std::memory_order_acquire) >= value; }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_acquire); }

  /// Raises the counter to `value`, if it is lower, and wakes who waits.
  void signal(std::uint64_t value) noexcept;

  /// Looks at the counter for at most `spin` without sleeping. True when it has reached `value`.
  bool spin(std::uint64_t value, std::chrono::nanoseconds spin) const noexcept;

  /// Sleeps until the counter has reached `value`, the deadline or a stop.
  WaitStatus wait_status(std::uint64_t value, const WaitContext& context) noexcept;

  /// The same, but throws DeadlineExceeded or Cancelled with `what` in the text.
  void wait(std::uint64_t value, const WaitContext& context, std::string_view what);

 private:
  void poke() noexcept;

  std::atomic<std::uint64_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> pokes_{0};  // the word that sleepers sleep on; changes at each wake-up
};

}  // namespace braid
