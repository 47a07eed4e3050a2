// The kernel's wait-on-address, for the two places that park threads (events, streams): std::atomic::wait has
// no deadline. Thread rule: any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace braid {

/// Sleeps while `word` holds `expected`, until woken or `deadline`. Returns early now and then: check again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::steady_clock::time_point deadline);

void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace braid
