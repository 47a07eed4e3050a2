#include "base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/thread_limit.h"

namespace braid {
namespace {

/// One parallel_for. Lives on its caller's stack: it leaves the pool's queue, and `helpers` falls to 0,
/// before the caller returns.
struct Job {
  Job(std::int64_t count, FunctionRef<void(std::int64_t)> function) : blocks(count), block(function) {}

  const std::int64_t blocks;
  const FunctionRef<void(std::int64_t)> block;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> helpers{0};        // pool threads inside run(); changed under the pool's mutex only
  std::condition_variable no_helper;  // goes with the pool's mutex
  std::mutex error_mutex;
  std::exception_ptr error;  // the first one

  bool has_unclaimed() const { return next.load(std::memory_order_relaxed) < blocks; }

  /// Runs blocks until none is left. After an error nothing new is begun.
  void run() noexcept {
    for (std::int64_t b; (b = next.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
      try {
        block(b);
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(blocks, std::memory_order_relaxed);
      }
    }
  }
};

constexpr int kSpins = 2000;  // some microseconds: what the last block of a helper is expected to still take

}  // namespace

struct ThreadPool::Impl {
  std::mutex mutex;
  std::condition_variable work;
  std::deque<Job*> jobs;  // guarded by mutex; those with unclaimed blocks, and some without
  int idle = 0;           // guarded by mutex
  bool stopping = false;  // guarded by mutex
  std::vector<std::thread> threads;

  void thread_main();
  Job* take_job();
  void stop();
};

/// The oldest job that still has blocks to claim. REQUIRES: mutex is held.
Job* ThreadPool::Impl::take_job() {
  while (!jobs.empty() && !jobs.front()->has_unclaimed()) jobs.pop_front();
  return jobs.empty() ? nullptr : jobs.front();
}

void ThreadPool::Impl::thread_main() {
  std::unique_lock lock(mutex);
  for (;;) {
    Job* job = take_job();
    if (!job) {
      if (stopping) return;
      ++idle;
      work.wait(lock);
      --idle;
      continue;
    }
    job->helpers.fetch_add(1, std::memory_order_relaxed);
    // Each thread wakes two more, so a wide pool is up after a few wake-ups and the caller pays for one.
    const int wake = static_cast<int>(std::min<std::int64_t>({idle, 2, job->blocks - job->next.load() - 1}));
    lock.unlock();
    for (int i = 0; i < wake; ++i) work.notify_one();
    job->run();
    lock.lock();
    if (job->helpers.fetch_sub(1, std::memory_order_release) == 1) job->no_helper.notify_one();
  }
}

void ThreadPool::Impl::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  work.notify_all();
  for (std::thread& thread : threads) thread.join();
}

ThreadPool::ThreadPool(int width) : impl_(std::make_unique<Impl>()) {
  if (width < 1 || width > kMostThreads)
    throw InvalidArgument("[ThreadPool] width must be from 1 to " + std::to_string(kMostThreads) + ", got " +
                          std::to_string(width));
  try {
    for (int i = 1; i < width; ++i) {
      impl_->threads.emplace_back([impl = impl_.get()] { impl->thread_main(); });
      pthread_setname_np(impl_->threads.back().native_handle(), ("pool-" + std::to_string(i)).c_str());
    }
  } catch (...) {  // the system has no further thread: those that run would end the process
    impl_->stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { impl_->stop(); }

int ThreadPool::width() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t blocks, FunctionRef<void(std::int64_t)> block) {
  if (impl_->threads.empty() || blocks <= 1) {
    for (std::int64_t b = 0; b < blocks; ++b) block(b);
    return;
  }
  Job job(blocks, block);
  bool wake = false;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->jobs.push_back(&job);
    wake = impl_->idle > 0;
  }
  if (wake) impl_->work.notify_one();
  job.run();
  {
    std::unique_lock lock(impl_->mutex);
    std::erase(impl_->jobs, &job);
    if (job.helpers.load() != 0) {
      lock.unlock();
      for (int i = 0; i < kSpins && job.helpers.load(std::memory_order_relaxed) != 0; ++i) cpu_relax();
      lock.lock();
      job.no_helper.wait(lock, [&] { return job.helpers.load() == 0; });
    }
  }
  if (job.error) std::rethrow_exception(job.error);
}

void ThreadPool::parallel_range(std::int64_t count, std::int64_t grain,
                                FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (grain < 1) throw InvalidArgument("[ThreadPool] grain must be at least 1, got " + std::to_string(grain));
  if (count <= 0) return;
  const std::int64_t blocks = (count - 1) / grain + 1;
  parallel_for(blocks, [&](std::int64_t b) { body(b * grain, std::min(count, (b + 1) * grain)); });
}

}  // namespace braid
