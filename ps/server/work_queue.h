// The queue of batches of input.shard DYNAMIC, as a state machine: what is given out to whom, what is done,
// and what comes back from workers that are gone. Knows no clock and no network: callers say what time it is.
// docs/design/work_queue.md. Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ps/client/batch_queue.h"

namespace braid::ps {

/// Numbers that are a part of the sequence, none twice.
class BatchRanges {
 public:
  bool empty() const { return ranges_.empty(); }
  std::uint64_t size() const;
  void add(std::uint64_t first, std::uint64_t end);
  void remove(std::uint64_t first, std::uint64_t end);
  /// The first range, [first, end). REQUIRES: not empty.
  std::pair<std::uint64_t, std::uint64_t> front() const { return *ranges_.begin(); }
  const std::map<std::uint64_t, std::uint64_t>& all() const { return ranges_; }  // first -> end

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

/// What of the sequence is not done: `open`, and all from `next` on.
struct QueueState {
  std::int64_t batch_rows = 1;
  std::uint64_t epoch_batches = 1;
  std::uint64_t next = 0;
  BatchRanges open;  // below `next`

  /// "queue batch=64 epoch_batches=23 next=40 open=8-16,24-32".
  std::string text() const;
  /// Throws: DataLoss.
  static QueueState parse(const std::string& text);
  /// Of the same rows in batches of another size, which are open where one of their rows is.
  QueueState in_batches_of(std::int64_t rows, std::uint64_t epoch_batches) const;
};

class WorkQueue {
 public:
  using Clock = std::chrono::steady_clock;

  /// `life`: not 0, and another one for each queue of a job. What a worker holds that is silent for
  /// `patience` is given to others. Throws: InvalidArgument (a plan that cannot be).
  WorkQueue(const QueuePlan& plan, const QueueState& from, std::uint64_t life, Clock::duration patience);

  /// Throws: Unavailable (another process has the worker's place, or the call is older than one that was
  /// heard), InvalidArgument (a worker number that the plan does not have).
  QueueAnswer talk(const QueueCall& call, Clock::time_point now);
  QueueState state() const;
  const QueuePlan& plan() const { return plan_; }
  std::uint64_t life() const { return life_; }

 private:
  struct Unit {
    std::uint64_t first = 0, count = 0, done = 0;
  };
  struct Member {
    std::uint64_t session = 0, number = 0;
    Clock::time_point heard;
    std::map<std::uint64_t, Unit> units;  // by id
  };

  Member& enter(const QueueCall& call, Clock::time_point now);
  void give_back_of_silent(Clock::time_point now);
  void give_back(Member& member);
  void note(Member& member, const QueueCall& call, QueueAnswer& answer);
  void give(Member& member, QueueAnswer& answer);
  std::uint64_t unit_batches() const;
  bool all_done() const;

  const QueuePlan plan_;
  const std::uint64_t life_;
  const Clock::duration patience_;
  std::uint64_t next_ = 0;
  std::uint64_t ids_ = 0;
  BatchRanges open_;
  std::map<int, Member> members_;
  std::set<std::pair<int, std::uint64_t>> former_;  // sessions whose place another one has
  bool ended_ = false;
};

}  // namespace braid::ps
