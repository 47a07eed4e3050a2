// A Stage runs input work ahead of the step: threads of its own call a producer for ticket 0, 1, 2, ... and
// at most `capacity` batches wait (or are being made) at any time. Batches come out in the order of their
// tickets whatever the number of threads, so a run does not depend on their timing, and each is moved out,
// never copied.
//
// Ends: a producer that throws OutOfRange ends the sequence at its ticket; any other error is delivered, with
// its own text, to the taker who reaches that ticket. close() lets what is ready drain and then ends;
// cancel() ends at once; both can be reopened. Thread rule: take() from any number of threads;
// start/close/cancel/reopen from one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "engine/ir/tensor.h"

namespace braid {

/// One batch of input: tensors that point into one block of memory, which goes back to its pool when the last
/// of them is dropped.
struct Batch {
  std::vector<Tensor> tensors;  // in the order of the producer's layout
  std::shared_ptr<void> block;  // what keeps the memory
  std::uint64_t ticket = 0;
  std::int64_t rows = 0;
  std::string
      cursor;  // the input position after this batch: a checkpoint of the step that consumed it stores this
};

struct StageOptions {
  std::string name = "stage";
  int capacity = 2;
  int num_threads = 1;
  std::chrono::milliseconds timeout{300000};  // longest wait of one take()
};

/// One interval in which a stage thread was making a batch, for the trace.
struct StageInterval {
  std::uint64_t ticket;
  std::chrono::steady_clock::time_point begin, end;
};

struct StageThreadStats {
  double busy_seconds = 0;  // inside the producer
  double wait_seconds = 0;  // for space in the buffer
  std::uint64_t batches = 0;
};

struct StageStats {
  std::vector<StageThreadStats> threads;
  double take_wait_seconds = 0;  // takers waiting for a batch
  std::uint64_t taken = 0;
  int ready = 0;  // batches that wait now
};

class Stage {
 public:
  using Producer = std::function<Batch(std::uint64_t ticket)>;
  /// Called on the stage's thread after each batch, e.g. to draw it in a trace. May be null.
  using Observer = std::function<void(int thread, const StageInterval&)>;

  /// Throws: InvalidArgument when capacity or num_threads is below 1.
  Stage(StageOptions options, Producer producer, Observer observer = {});
  ~Stage();  // cancels and joins
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Begins with `first_ticket`. REQUIRES: not running. After an end, start() again is the way to reopen.
  void start(std::uint64_t first_ticket = 0);

  /// The next batch. Throws: OutOfRange at the end, the producer's own error, DeadlineExceeded after the
  /// stage's timeout or `wait`'s deadline, Cancelled, InvalidArgument when the stage was never started.
  Batch take(const WaitContext& wait);

  /// No new batches are begun; those that are ready can still be taken, then take() throws OutOfRange.
  void close();
  /// Ends at once: take() throws Cancelled. A producer that is running is not interrupted; its batch is
  /// dropped.
  void cancel();

  StageStats stats() const;
  const StageOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
