#include "worker/process/stop_grace.h"

#include <algorithm>

#include "base/log.h"

namespace braid::worker {

StopGrace::StopGrace(const StopFlag& flag, std::chrono::nanoseconds grace)
    : flag_(flag),
      grace_(grace),
      on_request_(flag.token(),
                  [this] {
                    std::lock_guard lock(mutex_);
                    begin_anew();
                  }),
      thread_([this](const std::stop_token& ending) { keep_time(ending); }) {}

void StopGrace::begin_anew() {
  since_ = Clock::now();
  changed_.notify_all();
}

void StopGrace::resume() {
  std::lock_guard lock(mutex_);
  paused_ = false;
  begin_anew();
}

void StopGrace::pause() {
  std::lock_guard lock(mutex_);
  paused_ = true;
}

void StopGrace::step_ended(double seconds) {
  std::lock_guard lock(mutex_);
  seconds_ += seconds;
  ++steps_;
  begin_anew();
}

StopGrace::Clock::duration StopGrace::patience() const {
  const std::chrono::duration<double> usual(steps_ > 0 ? 3 * seconds_ / steps_ : 0);
  return std::max(grace_, std::chrono::duration_cast<Clock::duration>(usual));
}

void StopGrace::keep_time(const std::stop_token& ending) {
  std::unique_lock lock(mutex_);
  const auto counts = [this] { return flag_.requested() && !paused_; };
  while (!(counts() && Clock::now() >= since_ + patience())) {
    if (counts())
      changed_.wait_until(lock, ending, since_ + patience(), [] { return false; });
    else
      changed_.wait(lock, ending, counts);
    if (ending.stop_requested()) return;
  }
  log_warning("asked to stop, but no step has ended for {:.0f} s: giving up on the peers",
              std::chrono::duration<double>(patience()).count());
  lock.unlock();
  over_.request_stop();
}

}  // namespace braid::worker
