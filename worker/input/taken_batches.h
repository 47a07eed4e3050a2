// The batches that this worker takes from the job's queue (input.shard DYNAMIC): its steps, which count from
// one on, against the numbers of the batches that they are made with. A thread of its own takes units, one
// ahead of the one at work, and tells what is done. docs/design/work_queue.md.
//
// Thread rule: any thread, but begin(), finish() and leave(), which one thread calls.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/wait_context.h"
#include "ps/client/batch_queue.h"

namespace braid::worker {

/// Of one wait for a batch, which may be for others to finish theirs: silence of the queue ends it sooner.
inline constexpr std::chrono::milliseconds kTakeTime = std::chrono::hours(24 * 7);

struct TakenBatchesOptions {
  int worker = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);  // for an answer of the queue
  std::chrono::nanoseconds report = std::chrono::seconds(1);     // between two words about what is done
  std::stop_token stop = {};                                     // this process is asked to stop
};

class TakenBatches {
 public:
  TakenBatches(std::shared_ptr<ps::BatchQueue> queue, TakenBatchesOptions options);
  ~TakenBatches();  // says nothing to the queue
  TakenBatches(const TakenBatches&) = delete;
  TakenBatches& operator=(const TakenBatches&) = delete;

  /// Begins to take, for the steps from `first_step` on.
  void begin(std::uint64_t first_step);
  /// Waits until the step has a batch. Throws: OutOfRange (all batches of the job are done; this process is
  /// asked to stop, and would have to wait), Cancelled (`stop`), what the queue throws, where it has not
  /// answered within the deadline.
  void await(std::uint64_t step, const std::stop_token& stop);
  /// REQUIRES: await() of the step, or of a later one; finish() of no later one.
  std::uint64_t batch_of(std::uint64_t step) const;
  /// The step's update is made. REQUIRES: those before it are finished.
  void finish(std::uint64_t step);
  /// The first batch that is taken and not finished, at `batch` or behind it.
  std::optional<std::uint64_t> next_taken(std::uint64_t batch) const;

  /// What is not done of the whole job, for a checkpoint, with all that is finished here. Throws: as
  /// BatchQueue::state().
  std::string state(const WaitContext& wait);
  /// Takes no more, and gives back what is not finished. `ends`: nobody takes any more. Failing is a warning.
  void leave(bool ends, const WaitContext& wait);
  std::uint64_t finished() const;  // batches

 private:
  struct Unit {
    ps::BatchUnit batches;
    std::uint64_t given = 0, done = 0;
  };
  struct Given {
    std::uint64_t unit = 0, batch = 0;
  };
  enum class Word { Report, Leave, End };

  void run(const std::stop_token& stop);
  void say(Word word, const WaitContext& wait);
  ps::QueueCall next_call(Word word);
  void hear(const ps::QueueCall& call, const ps::QueueAnswer& answer);
  bool give_next();
  bool needs_unit() const;

  const std::shared_ptr<ps::BatchQueue> queue_;
  const TakenBatchesOptions options_;
  const std::uint64_t session_;

  std::mutex talking_;  // one call at a time, and their answers in their order; before mu_
  mutable std::mutex mu_;
  mutable std::condition_variable_any changed_;
  // Guarded by mu_.
  std::deque<Unit> units_;
  std::deque<Given> given_;  // of the steps from first_ on
  std::uint64_t first_ = 0;
  std::uint64_t number_ = 0, life_ = 0, finished_ = 0;
  bool must_wait_ = false;  // the last answer gave nothing, though something was wanted
  bool may_end_ = false;    // a unit is done since, perhaps the last one of the job
  bool ended_ = false;
  ErrorPtr error_;

  std::jthread thread_;
};

}  // namespace braid::worker
