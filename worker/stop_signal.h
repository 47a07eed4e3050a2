// SIGTERM and SIGINT as a request to stop at the next step boundary. One thread waits for the signals, so
// nothing runs inside a handler; a second signal ends the process at once.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>

namespace braid::worker {

/// The request, as a value that kernels (the stop vote of ALLREDUCE) and loops read.
struct StopFlag {
  std::atomic<int> signal{0};  // the first signal's number, 0: none
  bool requested() const { return signal.load(std::memory_order_relaxed) != 0; }
};

class StopSignal {
 public:
  /// Blocks both signals for this thread and those it makes. REQUIRES: constructed in main before other
  /// threads exist.
  StopSignal();
  ~StopSignal();
  const std::shared_ptr<StopFlag>& flag() const { return flag_; }

 private:
  std::shared_ptr<StopFlag> flag_ = std::make_shared<StopFlag>();
  std::jthread thread_;
};

}  // namespace braid::worker
