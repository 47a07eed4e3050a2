// Runs small tasks later, on one thread: retries and heartbeats. Tasks must not block.
// Thread rule: safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace braid::ps {

class RetryTimer {
 public:
  /// Told whether the timer is closing, in which case the task's time may not have come and no other will
  /// follow.
  using Task = std::function<void(bool closing)>;

  RetryTimer();
  ~RetryTimer() { close(); }

  /// After close() the task runs at once, here.
  void after(std::chrono::nanoseconds delay, Task task);
  /// Runs what waits with closing = true; joins. Idempotent. REQUIRES: not called by a task.
  void close();

 private:
  void serve(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<std::chrono::steady_clock::time_point, Task> tasks_;  // guarded by mutex_
  bool closed_ = false;                                               // guarded by mutex_
  std::jthread thread_;
};

}  // namespace braid::ps
