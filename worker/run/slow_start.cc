#include "worker/run/slow_start.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "base/log.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

void speak(const std::stop_token& stop, const std::string& what, std::chrono::milliseconds interval) {
  const auto begin = Clock::now();
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  for (auto next = begin + interval;; interval *= 2, next += interval) {
    never.wait_until(lock, stop, next, [] { return false; });
    if (stop.stop_requested()) return;
    log_info("start: {} takes {:.1f} s so far", what,
             std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

}  // namespace

SlowStart::SlowStart(std::string what, std::chrono::milliseconds interval)
    : thread_(
          [what = std::move(what), interval](const std::stop_token& stop) { speak(stop, what, interval); }) {}

}  // namespace braid::worker
