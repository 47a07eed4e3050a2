#include "worker/watch/trace_window.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "engine/exec/trace.h"

namespace braid::worker {
namespace {

/// Steps that are in flight when recording begins are recorded in part.
constexpr std::uint64_t kSkippedSteps = 3;
constexpr std::uint64_t kFarthest = 100'000;  // from now

}  // namespace

void TraceWindow::attach(Trace* trace, std::string process, bool records_always) {
  std::lock_guard lock(mu_);
  trace_ = trace;
  process_ = std::move(process);
  records_always_ = records_always;
  recording_ = false;
  active_ = wants_device_ = false;
}

std::optional<std::uint64_t> TraceWindow::start(std::uint64_t steps, std::uint64_t last_finished,
                                                std::uint64_t first) {
  std::lock_guard lock(mu_);
  if (!trace_) return std::nullopt;
  if (recording_) return window_;
  first_ = std::clamp(first, last_finished + kSkippedSteps, last_finished + kFarthest);
  last_ = first_ + std::clamp<std::uint64_t>(steps, 1, kMostSteps) - 1;
  begin_ = std::chrono::steady_clock::now();
  recording_ = true;
  finished_ = 0;
  trace_->set_recording(true);
  wants_device_ = samples_device_.load();
  active_ = true;
  return ++window_;
}

void TraceWindow::step_ended(std::uint64_t step) {
  if (!active_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mu_);
  finished_ = std::max(finished_, step);
  end_if_over();
}

void TraceWindow::tick() {
  if (!active_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mu_);
  end_if_over();
}

void TraceWindow::device_done() {
  wants_device_ = false;
  tick();
}

void TraceWindow::end_if_over() {
  const auto now = std::chrono::steady_clock::now();
  const bool done = finished_ >= last_ && !wants_device_;
  if (!recording_ || (!done && now - begin_ < kLongest)) return;
  end_ = now;
  recording_ = false;
  active_ = wants_device_ = false;
  if (trace_ && !records_always_) trace_->set_recording(false);
}

TraceWindow::State TraceWindow::state(std::uint64_t window) const {
  std::lock_guard lock(mu_);
  if (window == 0 || window != window_) return State::Unknown;
  return recording_ ? State::Recording : State::Ready;
}

std::string TraceWindow::json() const {
  std::lock_guard lock(mu_);
  if (!trace_) return {};
  std::ostringstream out;
  trace_->write(out, process_, {begin_, end_, first_, std::min(last_, std::max(finished_, first_))});
  return out.str();
}

}  // namespace braid::worker
