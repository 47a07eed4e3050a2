// How long a worker that is asked to stop still waits for its peers. Steps go on until all have heard of it;
// a peer that is lost just then would hold the process up until the step's deadline, longer than whoever
// asked waits before it kills. So the waits of steps end when none has ended for a while since the request.
// What a worker does between steps (an evaluation, a checkpoint) takes its time and does not count.
// Thread rule: safe from any thread; the thread inside requests the stop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "worker/process/stop_signal.h"

namespace braid::worker {

class StopGrace {
 public:
  /// Half of what `braid launch` and Kubernetes give by default between SIGTERM and SIGKILL.
  static constexpr std::chrono::seconds kGrace{15};

  /// `flag` outlives it. No step is slow that takes less than three times the mean of those before, so
  /// `grace` is at least that.
  explicit StopGrace(const StopFlag& flag, std::chrono::nanoseconds grace = kGrace);

  /// For the waits of steps.
  std::stop_token token() const { return over_.get_token(); }
  bool over() const { return over_.stop_requested(); }
  /// Steps are waited for from now on, until pause(), which it is in before the first time.
  void resume();
  void pause();
  void step_ended(double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  void keep_time(const std::stop_token& ending);
  void begin_anew();                 // REQUIRES: mutex_
  Clock::duration patience() const;  // REQUIRES: mutex_

  const StopFlag& flag_;
  const Clock::duration grace_;
  std::stop_source over_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool paused_ = true;         // guarded by mutex_, as the rest
  Clock::time_point since_{};  // of the last step's end, the request, or resume()
  double seconds_ = 0;         // of all steps
  double steps_ = 0;
  std::stop_callback<std::function<void()>> on_request_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace braid::worker
