#include "ps/server/table_threads.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace braid::ps {
namespace {

struct Job {
  TableThreads::Task task;
  TableThreads::Finally finally;
  std::atomic<int> remaining;
  std::mutex mutex;
  ErrorPtr error;  // guarded by mutex

  void run(int thread) {
    try {
      task(thread);
    } catch (...) {
      auto caught = capture_current_exception("[ps] table thread");
      std::lock_guard lock(mutex);
      if (!error) error = std::move(caught);
    }
    if (remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) finally(error);
  }
};

class Lane {
 public:
  void push(std::shared_ptr<Job> job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    ready_.notify_one();
  }
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_one();
  }
  void serve(int thread) {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job->run(thread);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::shared_ptr<Job>> jobs_;  // guarded by mutex_
  bool closed_ = false;                    // guarded by mutex_
};

}  // namespace

struct TableThreads::Impl {
  std::deque<Lane> lanes;
  std::vector<std::jthread> threads;
};

TableThreads::TableThreads(int threads) : impl_(std::make_unique<Impl>()) {
  for (int i = 0; i < threads; ++i) {
    Lane& lane = impl_->lanes.emplace_back();
    impl_->threads.emplace_back([&lane, i] { lane.serve(i); });
  }
}

TableThreads::~TableThreads() {
  for (Lane& lane : impl_->lanes) lane.close();
  impl_->threads.clear();
}

int TableThreads::threads() const { return static_cast<int>(impl_->threads.size()); }

void TableThreads::post(Task task, Finally finally) {
  auto job = std::make_shared<Job>();
  job->task = std::move(task);
  job->finally = std::move(finally);
  job->remaining.store(threads(), std::memory_order_relaxed);
  for (Lane& lane : impl_->lanes) lane.push(job);
}

}  // namespace braid::ps
