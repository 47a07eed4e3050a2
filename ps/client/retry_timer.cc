#include "ps/client/retry_timer.h"

namespace braid::ps {

RetryTimer::RetryTimer() : thread_([this](const std::stop_token& stop) { serve(stop); }) {}

void RetryTimer::after(std::chrono::nanoseconds delay, Task task) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      tasks_.emplace(std::chrono::steady_clock::now() + delay, std::move(task));
      changed_.notify_one();
      return;
    }
  }
  task(true);
}

void RetryTimer::close() {
  std::multimap<std::chrono::steady_clock::time_point, Task> rest;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  {
    std::lock_guard lock(mutex_);
    rest.swap(tasks_);
  }
  for (auto& [when, task] : rest) task(true);
}

void RetryTimer::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (tasks_.empty()) {
      changed_.wait(lock, stop, [&] { return !tasks_.empty(); });
      continue;
    }
    const auto next = tasks_.begin()->first;
    if (std::chrono::steady_clock::now() < next) {
      changed_.wait_until(lock, stop, next, [&] { return tasks_.empty() || tasks_.begin()->first < next; });
      continue;
    }
    Task task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    lock.unlock();
    task(false);
    task = nullptr;
    lock.lock();
  }
}

}  // namespace braid::ps
