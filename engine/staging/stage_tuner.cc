#include "engine/staging/stage_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr int kMostByRule = 8;      // batches of room that the rule alone may ask for
constexpr double kIdleShare = 0.1;  // threads that wait for room longer than this have time left
constexpr double kWorthAThread = 0.95;
constexpr int kShareAdded = 3;  // a third of the threads at most is added at a time

int ceil_ratio(double a, double b) {
  // A ratio just above a whole number is measurement noise.
  return static_cast<int>(std::ceil(std::min(a / std::max(b, 1e-9), 1e6) - 0.05));
}

}  // namespace

StageTuner::StageTuner(StageSizes begin, bool tune_capacity, bool tune_threads, Limits limits)
    : tune_capacity_(tune_capacity), tune_threads_(tune_threads), limits_(limits), sizes_(begin) {}

StageSizes StageTuner::by_rule(const StageWindow& window) const {
  StageSizes sizes = sizes_;
  if (tune_threads_)
    sizes.threads = std::clamp(ceil_ratio(window.make_seconds, window.step_seconds), 1, limits_.max_threads);
  if (tune_capacity_) {
    const int fit = std::min(ceil_ratio(window.step_seconds, window.make_seconds), kMostByRule);
    sizes.capacity = std::clamp(std::max(fit, sizes.threads), 1, limits_.max_capacity);
  }
  return sizes;
}

StageSizes StageTuner::with_more(const StageWindow& window) const {
  StageSizes sizes = sizes_;
  const bool idle = window.room_share > kIdleShare;
  if (!idle && tune_threads_) {
    // As many as serve the takers if each makes as many batches as one does now. Of ten threads one more is a
    // gain that noise hides.
    const int needed = ceil_ratio(sizes.threads * window.take_wait_seconds, window.step_seconds);
    const int added = std::clamp(needed, 1, std::max(1, sizes.threads / kShareAdded));
    sizes.threads = std::min(sizes.threads + added, limits_.max_threads);
    if (tune_capacity_)
      sizes.capacity = std::min(std::max(sizes.capacity, sizes.threads), limits_.max_capacity);
  } else if (idle && tune_capacity_) {
    sizes.capacity = std::min(sizes.capacity * 2, limits_.max_capacity);
  }
  return sizes;
}

StageSizes StageTuner::corrected(const StageWindow& window) const {
  const bool starved = window.take_wait_seconds > std::max(kEnough * window.step_seconds, kWakeUpSeconds);
  const bool in_vain = added_ > 0 && window.take_wait_seconds > kWorthAThread * last_.take_wait_seconds;
  if (in_vain) return {sizes_.capacity, sizes_.threads - added_};
  return starved ? with_more(window) : sizes_;
}

StageSizes StageTuner::update(const StageWindow& measured) {
  if (settled()) return sizes_;
  StageWindow window = measured;
  if (window.make_seconds <= 0) window.make_seconds = last_.make_seconds;
  const StageSizes chosen = windows_ == 0 ? by_rule(window) : corrected(window);
  const bool took_back = chosen.threads < sizes_.threads && windows_ > 0;
  added_ = windows_ > 0 ? std::max(0, chosen.threads - sizes_.threads) : 0;
  sizes_ = chosen;
  last_ = window;
  ++windows_;
  // What has just been tried and given up would be tried again.
  if (took_back) windows_ = kWindows;
  return sizes_;
}

StageSizes StageTuner::look_again(const StageWindow& measured) {
  if (done()) return sizes_;
  const bool in_vain = taken_from_ && measured.take_wait_seconds > kWorthAThread * last_.take_wait_seconds;
  const bool starved =
      measured.take_wait_seconds > std::max(kEnough * measured.step_seconds, kShortestWaitSeconds);
  const StageSizes more = starved ? with_more(measured) : sizes_;
  last_ = measured;
  if (in_vain || (starved && more == sizes_)) {
    if (in_vain) sizes_ = *taken_from_;
    looks_left_ = 0;
  } else {
    looks_left_ = starved ? kServedLooks : looks_left_ - 1;
  }
  taken_from_.reset();
  if (done() || !starved) return sizes_;
  taken_from_ = sizes_;
  return sizes_ = more;
}

std::string StageTuner::report() const {
  return fmt::format(
      "capacity {}, {} thread{}: making a batch takes {:.3g} ms, a step {:.3g} ms, waiting {:.3g} ms",
      sizes_.capacity, sizes_.threads, sizes_.threads == 1 ? "" : "s", 1e3 * last_.make_seconds,
      1e3 * last_.step_seconds, 1e3 * last_.take_wait_seconds);
}

}  // namespace braid
