#include "worker/inference/launch_pool.h"

#include <pthread.h>

namespace braid::worker {

LaunchPool::LaunchPool(int threads, const std::string& name) {
  if (threads < 1) throw InvalidArgument("a launch pool needs at least one thread");
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
  if (name.empty()) return;
  for (std::jthread& thread : threads_)
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
}

LaunchPool::~LaunchPool() = default;  // the threads are asked to stop, and joined

void LaunchPool::run(FunctionRef<void()> work, const WaitContext& wait) {
  Task task{.work = work, .error = nullptr, .ended = {}};
  std::unique_lock lock(mu_);
  const auto place = tasks_.insert(tasks_.end(), &task);
  arrived_.notify_one();
  if (!task.ended.wait_until(lock, wait.stop, wait.deadline, [&] { return task.done; })) {
    if (!task.begun) {
      tasks_.erase(place);
      wait.check("waiting for a launch thread");
      throw DeadlineExceeded("waiting for a launch thread: deadline exceeded");
    }
    task.ended.wait(lock, [&] { return task.done; });
  }
  if (task.error) throw_error(*task.error);
}

void LaunchPool::serve(const std::stop_token& stop) {
  std::unique_lock lock(mu_);
  while (arrived_.wait(lock, stop, [&] { return !tasks_.empty(); })) {
    Task* task = tasks_.front();
    tasks_.pop_front();
    task->begun = true;
    lock.unlock();
    ErrorPtr error;
    try {
      task->work();
    } catch (...) {
      error = capture_current_exception();
    }
    lock.lock();
    ++runs_;
    task->error = std::move(error);
    task->done = true;
    task->ended.notify_one();  // under the lock: the task lives until its owner has it
  }
}

std::uint64_t LaunchPool::runs() const {
  const std::lock_guard lock(mu_);
  return runs_;
}

}  // namespace braid::worker
