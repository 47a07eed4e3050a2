#include "engine/device/event.h"

#include "base/cpu.h"
#include "base/error.h"
#include "engine/device/futex.h"

namespace braid {

void Event::poke() noexcept {
  pokes_.fetch_add(1, std::memory_order_release);
  futex_wake_all(pokes_);
}

void Event::signal(std::uint64_t value) noexcept {
  std::uint64_t seen = value_.load(std::memory_order_relaxed);
  while (seen < value) {
    if (value_.compare_exchange_weak(seen, value, std::memory_order_seq_cst, std::memory_order_relaxed))
      break;
  }
  // Sequentially consistent with the sleeper's order (announce, then look): one of the two sees the other.
  if (sleepers_.load(std::memory_order_seq_cst) != 0) poke();
}

bool Event::spin(std::uint64_t value, std::chrono::nanoseconds spin) const noexcept {
  const auto end = std::chrono::steady_clock::now() + spin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (reached(value)) return true;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return reached(value);
}

WaitStatus Event::wait_status(std::uint64_t value, const WaitContext& context) noexcept {
  if (reached(value)) return WaitStatus::Reached;
  std::stop_callback on_stop(context.stop, [this] { poke(); });
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  WaitStatus status = WaitStatus::Reached;
  for (;;) {
    const std::uint32_t seen = pokes_.load(std::memory_order_acquire);
    if (value_.load(std::memory_order_seq_cst) >= value) break;
    if (context.stopped()) {
      status = WaitStatus::Stopped;
      break;
    }
    if (context.expired()) {
      status = WaitStatus::Deadline;
      break;
    }
    futex_wait(pokes_, seen, context.deadline);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

void Event::wait(std::uint64_t value, const WaitContext& context, std::string_view what) {
  switch (wait_status(value, context)) {
    case WaitStatus::Reached:
      return;
    case WaitStatus::Stopped:
      throw Cancelled(std::string(what) + ": cancelled");
    case WaitStatus::Deadline:
      throw DeadlineExceeded(std::string(what) + ": deadline exceeded");
  }
}

}  // namespace braid
