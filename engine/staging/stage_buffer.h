// The buffer between the threads of a stage and its takers: capacity, order, back-pressure and the ways to
// end. Owns no thread.
//
// A producer thread begins a ticket, makes its batch, and puts it (or skips the ticket, or fails it).
// Ordered: a batch has room when fewer than `capacity` begun tickets are before it, so what is ready never
// exceeds the capacity and the next batch in order is always let in. Unordered: a batch has room when fewer
// than `capacity` are ready. Tickets that were skipped leave no gap. An error stays where it was put: every
// later taker sees it.
//
// Who waits looks for a change for a moment, where a core is free for that, before going to sleep: waking a
// thread takes longer than much of what stages do.
//
// Open -> Closed: nothing more is begun; what was begun is still delivered, then takers see the end. Open,
// Closed -> Cancelled: what is ready is dropped, everybody returns at once. Thread rule: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/wait_context.h"
#include "engine/staging/batch.h"
#include "engine/staging/stage_options.h"

namespace braid {

struct StageBufferStats {
  int ready = 0;                 // batches that wait now
  int most_ready = 0;            // since open()
  double ready_seconds = 0;      // integral of `ready` over the time since open()
  double open_seconds = 0;       // since open()
  double take_wait_seconds = 0;  // of takers
  std::uint64_t taken = 0;
  std::uint64_t late_takes = 0;  // takes that had to wait
  std::uint64_t dropped = 0;
};

class StageBuffer {
 public:
  /// `capacity` is the options', unless that is AUTO.
  StageBuffer(const StageOptions& options, int capacity);

  /// Empties it and begins at `first_ticket`, after the tickets `again`, with so many threads that produce.
  /// REQUIRES: no thread is inside a call.
  void open(std::uint64_t first_ticket, int producers, std::vector<std::uint64_t> again = {});
  void close();
  void cancel();
  bool running() const;  // open, not failed, and somebody produces
  bool cancelled() const;
  /// The ticket from which on no taker has got one: where it can go on after an end.
  std::uint64_t next_untaken() const;
  /// Tickets before that one which no taker has got; where they come out in their order there are none.
  std::vector<std::uint64_t> left_out() const;

  // ---- producers
  /// The ticket to make next; nothing when no more is to be begun.
  std::optional<std::uint64_t> begin();
  enum class Put { Stored, Dropped, Failed, Cancelled };
  /// Waits for room. Failed: the wait became an error that takers see. `waited` grows by the time it took.
  Put put(std::uint64_t ticket, Batch batch, double& waited_seconds);
  /// Nothing comes at this ticket.
  void skip(std::uint64_t ticket);
  /// Takers get the error at this ticket, and nothing more is begun.
  void fail(std::uint64_t ticket, ErrorPtr error);
  /// Sleeps; false when the stage ends meanwhile.
  bool sleep(std::chrono::milliseconds time);
  void producer_added();
  /// The last one to end ends the sequence.
  void producer_ended();

  // ---- takers
  struct Taken {
    Batch batch;
    double waited_seconds = 0;
  };
  /// Throws: OutOfRange at the end, the error that was put, DeadlineExceeded, Cancelled, InvalidArgument when
  /// it was never opened.
  Taken take(const WaitContext& wait);

  /// While paused, waiting for room takes no time: nobody is expected to take.
  void pause();
  void resume();

  void set_capacity(int capacity);
  StageBufferStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { New, Open, Closed, Cancelled };
  struct Entry {
    enum class Kind { Gone, Making, Ready, Failed };
    Kind kind = Kind::Gone;
    Batch batch;
    ErrorPtr error;
  };

  // All with mu_ held.
  Entry& entry(std::uint64_t position) { return ring_[position % ring_.size()]; }
  std::uint64_t reserve(Entry::Kind kind);
  void remove(std::uint64_t position);
  void make_ready(std::uint64_t position, Batch batch);
  void fail_at(std::uint64_t position, ErrorPtr error);
  bool has_room(std::uint64_t ticket);
  /// Nobody will take it: an error comes before.
  bool unreachable(std::uint64_t ticket) const { return failed_ && (!ordered_ || ticket > failed_position_); }
  bool next_is_there();
  bool at_end() const { return oldest_ == next_ && producers_ == 0; }
  void count_ready(int change);
  /// Something changed that producers, or takers, may wait for.
  void tell_producers();
  void tell_takers();
  /// Gives up the lock until something changes, for a moment at most.
  void look_for_change(std::unique_lock<std::mutex>& lock);
  bool wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t ticket);
  Taken take_next(std::unique_lock<std::mutex>& lock, const WaitContext& wait);

  // Set once.
  const std::string name_;
  const bool ordered_;
  const int num_clients_;
  const std::chrono::milliseconds timeout_;
  const TimeoutPolicy on_timeout_;

  std::atomic<std::uint32_t> changes_{0};  // written with mu_ held

  mutable std::mutex mu_;
  std::condition_variable room_;          // producers wait here
  std::condition_variable_any ready_cv_;  // takers wait here
  std::condition_variable_any turn_;      // takers beyond num_clients wait here
  // Guarded by mu_.
  State state_ = State::New;
  int capacity_;
  int producers_ = 0;
  bool failed_ = false;
  std::uint64_t failed_position_ = 0;  // the first, where failed_
  std::uint64_t next_ticket_ = 0;
  std::vector<std::uint64_t> again_;  // to be begun before that one, the last first
  std::set<std::uint64_t> begun_;     // unordered: and neither taken nor skipped
  // Batches in the order in which they are delivered, at positions [oldest_, next_) of a ring. Ordered: a
  // position is a ticket and is reserved when it is begun; unordered: it is reserved when the batch is there.
  std::vector<Entry> ring_;
  std::uint64_t oldest_ = 0, next_ = 0;
  int gone_ = 0;  // skipped positions behind oldest_
  int waiting_producers_ = 0, waiting_takers_ = 0, clients_ = 0, pauses_ = 0;
  Clock::time_point resumed_;
  Clock::time_point opened_, counted_;  // counted_: up to when ready_seconds is right
  StageBufferStats stats_;
};

}  // namespace braid
