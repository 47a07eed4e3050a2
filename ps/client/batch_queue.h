// What a worker and the queue of batches say to each other (input.shard DYNAMIC, docs/design/work_queue.md).
// The queue gives out the numbers of an endless sequence of batches, some at a time. ps/server/work_queue.h
// is the queue itself, ps/client/queue_link.h the way to one on a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/wait_context.h"

namespace braid::ps {

/// Batches [first, first + count).
struct BatchUnit {
  std::uint64_t id = 0;  // of this giving out: what comes back and is given again has another one
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// Of a unit that a worker has: its first `done` batches are in the variables.
struct HeldUnit {
  std::uint64_t id = 0;
  std::uint64_t first = 0;
  std::uint64_t done = 0;
};

/// All that a worker has, each time: what the queue believes that it has, and it does not name, is given out
/// again.
struct QueueCall {
  int worker = 0;
  std::uint64_t session = 0;  // of the worker's process
  std::uint64_t number = 0;   // rises with each call of the process, also where one is tried again
  std::uint64_t life = 0;     // of the queue that `held` is from; 0: of none yet
  std::vector<HeldUnit> held;
  bool wants = false;   // a unit
  bool leaves = false;  // gives back what it has not done, and takes no more
  bool ends = false;    // the leader: nobody takes any more
};

struct QueueAnswer {
  enum class Kind {
    Noted,    // nothing was wanted
    Unit,     // `unit`
    Wait,     // all are given out, and not all are done: some may come back
    End,      // all are done, or the leader wanted no more
    NotOpen,  // the leader has not come yet
  };
  Kind kind = Kind::Noted;
  std::uint64_t life = 0;
  std::vector<std::uint64_t> revoked;  // ids of held units that are no longer the worker's
  BatchUnit unit;
};

/// What the numbers mean, alike on all workers, and how they are given out.
struct QueuePlan {
  std::uint64_t epoch_batches = 1;
  std::uint64_t total = 1;  // batches of the job
  std::uint64_t take = 16;  // batches of a unit, at most
  std::int64_t batch_rows = 1;
  int workers = 1;

  bool operator==(const QueuePlan&) const = default;
};

/// Thread rule: any thread.
class BatchQueue {
 public:
  virtual ~BatchQueue() = default;

  /// The leader: batches are given out from now on, those that `state` leaves open. Empty: all. With `keep` a
  /// queue that is open already, with the same plan, stays as it is. Result: its state. Throws:
  /// InvalidArgument (a plan or a worker number that cannot be), DataLoss (`state` is none), Unavailable,
  /// DeadlineExceeded, Cancelled.
  virtual std::string open(const QueuePlan& plan, const std::string& state, bool keep,
                           const WaitContext& wait) = 0;
  /// Throws: Unavailable (another process has the worker's place; the queue cannot be reached),
  /// DeadlineExceeded, Cancelled, InvalidArgument.
  virtual QueueAnswer talk(const QueueCall& call, const WaitContext& wait) = 0;
  /// For a checkpoint. What workers have not said to be done is open in it. Throws: as talk().
  virtual std::string state(const WaitContext& wait) = 0;
};

}  // namespace braid::ps
