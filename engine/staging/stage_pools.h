// Thread pools that stages may be told to work on, as a session declares them: the subgraph of a stage that
// uses pool i runs on the inter-op threads of pool i and nowhere else, and its kernels take
// intra_op_threads_num threads. Pools live with their session. Thread rule: run() from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace braid {

struct StagePoolOptions {
  int inter_op_threads_num = 1;  // records of all its stages that are made at the same time
  int intra_op_threads_num = 1;  // of the kernels of one record
  std::string global_name = {};  // of its threads; empty: "stage_pool<index>"
};

class StagePool {
 public:
  /// Throws: InvalidArgument for counts out of range. `name` stands in for an empty global_name.
  StagePool(StagePoolOptions options, const std::string& name);
  ~StagePool();  // REQUIRES: nobody is in run()
  StagePool(const StagePool&) = delete;
  StagePool& operator=(const StagePool&) = delete;

  const StagePoolOptions& options() const { return options_; }

  /// Runs `work` on one of the threads and returns when it is done; throws what it throws, and Cancelled when
  /// a stop is requested before one was free. REQUIRES: not called from one of the pool's own threads.
  void run(FunctionRef<void()> work, const std::stop_token& stop = {});
  /// Seconds that the threads have worked, for reports.
  double busy_seconds() const;

 private:
  struct Job;
  void work();
  void stop();

  const StagePoolOptions options_;
  mutable std::mutex mu_;
  std::condition_variable jobs_there_;
  std::condition_variable_any done_;
  // Guarded by mu_.
  std::deque<Job*> jobs_;
  double busy_seconds_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

class StagePools {
 public:
  /// Throws: InvalidArgument for counts out of range, or one global_name used twice.
  explicit StagePools(const std::vector<StagePoolOptions>& pools);

  int size() const { return static_cast<int>(pools_.size()); }
  StagePool& at(int id) { return *pools_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<std::unique_ptr<StagePool>> pools_;
};

}  // namespace braid
