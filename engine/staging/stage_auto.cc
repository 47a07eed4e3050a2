// AUTO: windows of takes are measured and handed to the tuner, whose sizes are applied while the stage runs.
#include <algorithm>

#include "base/log.h"
#include "engine/staging/stage_impl.h"

namespace braid {

using Clock = std::chrono::steady_clock;

/// REQUIRES: mu is held.
StageThreadStats Stage::Impl::sum_threads() const {
  StageThreadStats sum;
  for (const StageThreadStats& t : stats) {
    sum.busy_seconds += t.busy_seconds;
    sum.wait_seconds += t.wait_seconds;
    sum.batches += t.batches;
  }
  return sum;
}

/// REQUIRES: tune_mu is held.
StageWindow Stage::Impl::measure(const StageThreadStats& now, Clock::time_point time) const {
  const double busy = now.busy_seconds - window_threads.busy_seconds;
  const double waited = now.wait_seconds - window_threads.wait_seconds;
  const auto batches = static_cast<double>(std::max<std::uint64_t>(now.batches - window_threads.batches, 1));
  StageWindow window;
  window.make_seconds = busy / batches;
  const auto takes = static_cast<double>(window_takes);
  window.take_wait_seconds = window_wait_seconds / takes;
  // Several takers wait at the same time; together they ask for a batch so much more often.
  const auto takers = static_cast<double>(std::max<std::size_t>(window_takers.size(), 1));
  window.step_seconds = std::max(0.0, std::chrono::duration<double>(time - window_begin).count() / takes -
                                          window.take_wait_seconds / takers);
  window.room_share = waited / std::max(busy + waited, 1e-9);
  return window;
}

/// Whether the takes so far make a window of those that the tuner wants now. REQUIRES: tune_mu is held.
bool Stage::Impl::window_is_over(Clock::time_point time) const {
  if (tuned_takes == StageTuner::kSkippedTakes) return true;  // the first one begins
  if (window_takes < StageTuner::kWindowTakes) return false;
  return !tuner.settled() || time - window_begin >= tuner.look();
}

void Stage::Impl::tune(double waited_seconds) {
  StageSizes sizes;
  {
    std::lock_guard lock(tune_mu);
    if (tuner.done()) return;
    ++tuned_takes;
    if (tuned_takes > StageTuner::kSkippedTakes) {
      window_wait_seconds += waited_seconds;
      window_takers.insert(std::this_thread::get_id());
      ++window_takes;
    }
    if (tuned_takes < StageTuner::kSkippedTakes) return;
    const auto now = Clock::now();
    if (!window_is_over(now)) return;
    StageThreadStats sum;
    {
      std::lock_guard inner(mu);
      sum = sum_threads();
    }
    const bool was_settled = tuner.settled();
    const StageSizes before = tuner.sizes();
    if (window_takes > 0) was_settled ? tuner.look_again(measure(sum, now)) : tuner.update(measure(sum, now));
    sizes = tuner.sizes();
    window_begin = now;
    window_wait_seconds = 0;
    window_takes = 0;
    window_takers.clear();
    window_threads = sum;
    if (tuner.done()) tuning = false;
    if (tuner.settled() && (!was_settled || sizes != before)) {
      report = tuner.report();
      log_info("stage '{}': {}", options.name, report);
    }
    if (sizes == before && was_settled) return;
  }
  buffer.set_capacity(sizes.capacity);
  change_threads(sizes.threads);
}

}  // namespace braid
