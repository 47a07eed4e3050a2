// Waiting for what can only be asked for: a device's events, a number that a device writes.
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <thread>

#include "base/wait_context.h"

namespace braid {

/// Looks until `reached()` holds: without pause for 200 us, then between yields up to 5 ms, then between
/// sleeps of 50 us. False when the deadline has passed or a stop was requested.
template <class Reached>
bool poll(const Reached& reached, const WaitContext& wait) {
  constexpr std::chrono::microseconds kSpin{200};
  constexpr std::chrono::milliseconds kYield{5};
  constexpr std::chrono::microseconds kNap{50};
  constexpr int kLooksBetweenClocks = 64;
  const auto begin = WaitContext::Clock::now();
  for (;;) {
    for (int look = 0; look < kLooksBetweenClocks; ++look) {
      if (reached()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    if (wait.expired() || wait.stopped()) return false;
    const auto waited = WaitContext::Clock::now() - begin;
    if (waited > kYield)
      std::this_thread::sleep_for(kNap);
    else if (waited > kSpin)
      std::this_thread::yield();
  }
}

}  // namespace braid
