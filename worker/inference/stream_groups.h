// Which stream group a request runs on. A group runs one request at a time, so all of them have the same work
// outstanding, and requests wait in one bounded line, first come, first served, for the group that is free
// first; where several are free, it is the one that has worked the least. A group is given back by its
// lease's end, on every path.
//
// Waking a thread can take longer than a request of a device. So the front of the line is woken before its
// turn and then spins for a little, while a core is free for that: a group does not stand still between two
// requests. Thread rule: safe from any thread; a lease belongs to one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

#include "base/wait_context.h"

namespace braid::worker {

class StreamGroups {
 public:
  /// `queue_capacity` requests may wait. REQUIRES: count >= 1.
  StreamGroups(int count, std::size_t queue_capacity);
  StreamGroups(const StreamGroups&) = delete;

  class Lease {
   public:
    Lease(Lease&& other) noexcept : groups_(other.groups_), group_(other.group_) { other.groups_ = nullptr; }
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (groups_) groups_->release(group_);
    }
    int group() const { return group_; }

   private:
    friend class StreamGroups;
    Lease(StreamGroups& groups, int group) : groups_(&groups), group_(group) {}
    StreamGroups* groups_;
    int group_;
  };

  /// Throws: Unavailable when the line is full; DeadlineExceeded, Cancelled while waiting in it.
  Lease acquire(const WaitContext& wait);

  struct Stats {
    std::uint64_t requests = 0;
    double busy_seconds = 0;  // leased
  };
  /// By group; leases that have not ended do not count.
  std::vector<Stats> stats() const;
  /// Requests in line.
  std::size_t waiting() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Group {
    bool free = true;
    Clock::time_point since;  // of the lease
    Clock::duration busy{};
    std::uint64_t requests = 0;
  };
  struct Waiter {
    std::atomic<int> group{-1};
    bool near = false;  // to the front; guarded by mu_
    std::condition_variable_any changed;
  };

  void release(int group) noexcept;
  /// Of the line's front: they are woken.
  void call_nearest() noexcept;  // REQUIRES: mu_ is held

  mutable std::mutex mu_;
  std::vector<Group> groups_;   // guarded by mu_
  std::list<Waiter*> waiting_;  // guarded by mu_
  const std::size_t queue_capacity_;
};

}  // namespace braid::worker
