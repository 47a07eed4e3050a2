// A Stage runs input work ahead of the step: threads of its own make the batches of tickets 0, 1, 2, ... and
// at most `capacity` finished ones wait. Batches come out in the order of their tickets whatever the number
// of threads (unless `ordered` is off), so a run does not depend on their timing; each is moved out, never
// copied.
//
// Ends. A producer that throws one of closed_exception_types (OutOfRange) ends its thread, and the last
// thread ends the sequence. One of ignored_exception_types is counted, skips the ticket, and waits a little.
// Any other error reaches the taker, with its own text, at its ticket. close() lets what was begun drain and
// then ends; cancel() ends at once; after both, and after an end, start() or resume() begins again.
//
// Thread rule: take() and cancel() from any thread; start, resume, close and stop from one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "engine/staging/batch.h"
#include "engine/staging/stage_options.h"

namespace braid {

/// One record on its way: `stop` says that the stage was cancelled and the work is in vain.
struct StageCall {
  std::uint64_t ticket = 0;
  int thread = 0;
  std::stop_token stop;
};

/// Where batches come from.
struct StageProducer {
  /// Reads the next record from a source that has an order of its own: called by one thread at a time, in the
  /// order of tickets; not again after it has thrown a closed type. Null: `make` needs the ticket only.
  std::function<Batch(const StageCall&)> read;
  /// Makes the batch from the record (an empty one without `read`); called by several threads at a time.
  std::function<Batch(const StageCall&, Batch record)> make;
  /// Waits for what `read` needs of other stages: called before it, as it is, but on the stage's own thread
  /// and not as work, so that no thread of a pool waits for what the same pool has to make. May be null.
  std::function<void(const StageCall&)> await = {};
};

/// One interval in which a stage thread was making a batch, for the trace.
struct StageInterval {
  std::uint64_t ticket;
  std::chrono::steady_clock::time_point begin, end;
};

struct StageThreadStats {
  double busy_seconds = 0;  // inside the producer
  double wait_seconds = 0;  // for room in the buffer
  std::uint64_t batches = 0;
  std::uint64_t errors = 0;  // ignored ones, timeouts and its end too
};

struct StageStats {
  std::vector<StageThreadStats> threads;
  double take_wait_seconds = 0;  // takers waiting for a batch
  std::uint64_t taken = 0;
  int ready = 0;                 // batches that wait now
  int most_ready = 0;            // since the start
  double occupancy = 0;          // mean of `ready` since the start
  std::uint64_t late_takes = 0;  // takes that had to wait
  std::uint64_t dropped = 0;
  std::map<ErrorCode, std::uint64_t> ignored;
  int capacity = 0;     // what AUTO has chosen so far, or the options'
  int num_threads = 0;  // the same
};

class Stage {
 public:
  using Producer = std::function<Batch(std::uint64_t ticket)>;
  /// Called on the stage's thread after each batch, e.g. to draw it in a trace. May be null.
  using Observer = std::function<void(int thread, const StageInterval&)>;

  /// Throws: InvalidArgument (check_stage_options).
  Stage(StageOptions options, Producer producer, Observer observer = {});
  Stage(StageOptions options, StageProducer producer, const StageSession& session = {},
        Observer observer = {});
  /// Producers of their own for each thread, into one buffer; num_threads is their number. Ordered: they take
  /// turns, and one that has ended is left out. Throws also: InvalidArgument without producers, or for
  /// another num_threads than 1 or their number.
  Stage(StageOptions options, std::vector<StageProducer> producers, const StageSession& session = {},
        Observer observer = {});
  ~Stage();  // stop()
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Begins with `first_ticket`. Throws: InvalidArgument when it is running. Waits for producers that are
  /// still at work on what was cancelled.
  void start(std::uint64_t first_ticket = 0);
  /// start() at the first ticket that nobody has taken. After cancel() batches that waited are made again.
  void resume();

  /// The next batch. Throws: OutOfRange at the end, the producer's own error, DeadlineExceeded after the
  /// stage's timeout or `wait`'s deadline, Cancelled, InvalidArgument when the stage was never started.
  Batch take(const WaitContext& wait);

  /// No new batches are begun; those that are ready or being made can still be taken, then take() throws
  /// OutOfRange.
  void close();
  /// Ends at once: take() throws Cancelled. A producer that is running is asked to stop; its batch is
  /// dropped.
  void cancel();
  /// cancel(), and waits until no thread of it is at work: then it takes from nobody any more.
  void stop();
  /// Batches are begun: start() would be refused.
  bool running() const;

  /// While one lives nobody is expected to take (an evaluation, a checkpoint): batches that wait for room do
  /// not time out.
  class Pause {
   public:
    explicit Pause(Stage& stage);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Stage& stage_;
  };

  StageStats stats() const;
  const StageOptions& options() const;
  /// What AUTO has chosen and why; empty while it measures, and when nothing is AUTO.
  std::string tuning_report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
