#include "engine/device/core_place.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kCores = 1024;  // of which others are not known here
constexpr std::chrono::milliseconds kBetweenMoves{20};

std::array<std::atomic<int>, kCores> workers;  // threads that have taken the core

struct Place {
  int core = -1;  // -1: none is taken
  Clock::time_point moved;
};
thread_local Place place;

std::atomic<int>& on(int core) { return workers[static_cast<std::size_t>(core)]; }

/// One that the thread may use and nobody has taken; -1: there is none.
int free_core(const cpu_set_t& allowed) {
  for (int core = 0; core < static_cast<int>(kCores); ++core)
    if (CPU_ISSET(core, &allowed) && on(core).load(std::memory_order_relaxed) == 0) return core;
  return -1;
}

bool move_to(int core, const cpu_set_t& allowed) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  return sched_setaffinity(0, sizeof(one), &one) == 0 && sched_setaffinity(0, sizeof(allowed), &allowed) == 0;
}

}  // namespace

void CorePlace::take() noexcept {
  if (place.core >= 0) return;
  int core = sched_getcpu();
  if (core < 0 || core >= static_cast<int>(kCores)) return;
  if (on(core).fetch_add(1, std::memory_order_relaxed) > 0) {
    const Clock::time_point now = Clock::now();
    cpu_set_t allowed;
    if (now - place.moved >= kBetweenMoves && sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
      const int other = free_core(allowed);
      if (other >= 0) {
        on(core).fetch_sub(1, std::memory_order_relaxed);
        on(other).fetch_add(1, std::memory_order_relaxed);
        place.moved = now;
        move_to(other, allowed);
        core = other;
      }
    }
  }
  place.core = core;
}

void CorePlace::leave() noexcept {
  if (place.core < 0) return;
  on(place.core).fetch_sub(1, std::memory_order_relaxed);
  place.core = -1;
}

}  // namespace braid
