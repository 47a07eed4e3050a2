// SIGTERM, SIGINT, SIGHUP and SIGPIPE as a request to stop at the next step boundary. One thread waits for
// the signals, so nothing runs inside a handler, except that SIGPIPE, which is a thread's, is passed on to
// it; a second SIGINT, a second or more later, ends the process at once.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>

namespace braid::worker {

/// The request, as a value that kernels (the stop vote of ALLREDUCE) and loops read, and as a token for waits
/// before the first step, of which nothing is lost when they end. Thread rule: safe from any thread.
class StopFlag {
 public:
  void request() { source_.request_stop(); }
  bool requested() const { return source_.stop_requested(); }
  /// The job has ended by itself: who asks from now on, as launchers ask servers when the last worker is
  /// gone, changes nothing, and is not told that something will stop.
  void set_ended() { ended_ = true; }
  bool ended() const { return ended_; }
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::atomic<bool> ended_{false};
};

class StopSignal {
 public:
  /// Blocks these signals for this thread and those it makes. REQUIRES: constructed in main before other
  /// threads exist.
  StopSignal();
  ~StopSignal();
  const std::shared_ptr<StopFlag>& flag() const { return flag_; }

 private:
  std::shared_ptr<StopFlag> flag_ = std::make_shared<StopFlag>();
  std::jthread thread_;
};

}  // namespace braid::worker
