#include "engine/device/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace braid {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::steady_clock::time_point deadline) {
  using namespace std::chrono;
  const nanoseconds since_boot = std::max(nanoseconds(0), nanoseconds(deadline.time_since_epoch()));
  timespec until{};
  until.tv_sec = static_cast<std::time_t>(since_boot.count() / 1'000'000'000);
  until.tv_nsec = static_cast<long>(since_boot.count() % 1'000'000'000);
  // The bitset form takes an absolute time of CLOCK_MONOTONIC, which is what steady_clock reads.
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace braid
