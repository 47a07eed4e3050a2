// Threads that launch the work of stream groups in the place of the threads that ask for it. Thread rule:
// run() from any thread but the pool's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/wait_context.h"

namespace braid::worker {

class LaunchPool {
 public:
  /// The threads have the first 15 characters of `name`, unless it is empty. REQUIRES: threads >= 1.
  explicit LaunchPool(int threads, const std::string& name = {});
  /// REQUIRES: no run() is under way.
  ~LaunchPool();
  LaunchPool(const LaunchPool&) = delete;

  /// Runs `work` on one of the threads and waits for its end; what it throws is thrown here. Work that no
  /// thread has begun when the wait ends is withdrawn; work that has begun ends by itself.
  /// Throws: DeadlineExceeded, Cancelled.
  void run(FunctionRef<void()> work, const WaitContext& wait);

  int threads() const { return static_cast<int>(threads_.size()); }
  std::uint64_t runs() const;

 private:
  struct Task {
    FunctionRef<void()> work;
    bool begun = false, done = false;
    ErrorPtr error;
    std::condition_variable_any ended;
  };
  void serve(const std::stop_token& stop);

  mutable std::mutex mu_;
  std::condition_variable_any arrived_;
  std::list<Task*> tasks_;  // guarded by mu_; those that have not begun
  std::uint64_t runs_ = 0;  // guarded by mu_
  std::vector<std::jthread> threads_;
};

}  // namespace braid::worker
