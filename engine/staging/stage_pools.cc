#include "engine/staging/stage_pools.h"

#include <pthread.h>

#include <chrono>
#include <exception>

#include "base/error.h"
#include "base/thread_limit.h"
#include "engine/staging/stage_options.h"

namespace braid {

using Clock = std::chrono::steady_clock;

struct StagePool::Job {
  FunctionRef<void()> work;
  std::exception_ptr error = nullptr;
  bool done = false;
};

StagePool::StagePool(StagePoolOptions options, const std::string& name)
    : options_([&] {
        if (options.global_name.empty()) options.global_name = name;
        const auto good = [](int threads) { return threads >= 1 && threads <= kMostThreads; };
        if (!good(options.inter_op_threads_num) || !good(options.intra_op_threads_num))
          throw InvalidArgument("stage thread pool '" + options.global_name +
                                "': inter_op_threads_num and intra_op_threads_num must be from 1 to " +
                                std::to_string(kMostThreads) + ", got " +
                                std::to_string(options.inter_op_threads_num) + " and " +
                                std::to_string(options.intra_op_threads_num));
        return std::move(options);
      }()) {
  try {
    for (int i = 0; i < options_.inter_op_threads_num; ++i) {
      threads_.emplace_back([this] { work(); });
      // The system keeps 15 characters.
      pthread_setname_np(threads_.back().native_handle(), options_.global_name.substr(0, 15).c_str());
    }
  } catch (...) {  // the system has no further thread: those that run would be waited for without end
    stop();
    throw;
  }
}

StagePool::~StagePool() { stop(); }

void StagePool::stop() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  jobs_there_.notify_all();
}

void StagePool::run(FunctionRef<void()> work, const std::stop_token& stop) {
  Job job{work};
  std::unique_lock lock(mu_);
  jobs_.push_back(&job);
  jobs_there_.notify_one();
  if (!done_.wait(lock, stop, [&] { return job.done; })) {
    if (std::erase(jobs_, &job) > 0)
      throw Cancelled("waiting for stage thread pool '" + options_.global_name + "': cancelled");
    done_.wait(lock, [&] { return job.done; });  // a thread is at it
  }
  if (job.error) std::rethrow_exception(job.error);
}

void StagePool::work() {
  std::unique_lock lock(mu_);
  for (;;) {
    jobs_there_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = *jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    const auto begin = Clock::now();
    try {
      job.work();
    } catch (...) {  // handed to the thread that waits in run()
      job.error = std::current_exception();
    }
    const auto end = Clock::now();
    lock.lock();
    busy_seconds_ += std::chrono::duration<double>(end - begin).count();
    job.done = true;
    done_.notify_all();
  }
}

double StagePool::busy_seconds() const {
  std::lock_guard lock(mu_);
  return busy_seconds_;
}

StagePools::StagePools(const std::vector<StagePoolOptions>& pools) {
  for (std::size_t i = 0; i < pools.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (!pools[i].global_name.empty() && pools[i].global_name == pools[j].global_name)
        throw InvalidArgument("stage thread pool '" + pools[i].global_name + "' is declared twice");
    pools_.push_back(std::make_unique<StagePool>(pools[i], "stage_pool" + std::to_string(i)));
  }
}

}  // namespace braid
