// A host stream: a thread and a FIFO queue. Work runs in the order in which it was enqueued, one at a time;
// record() and wait() order streams among each other by events. Owns the thread, the queue and the meter;
// knows nothing of programs: an Instance enqueues one task a step, which walks that stream's instructions.
//
// A thread without work, or waiting for an event, spins for some microseconds if a core is free for that
// (CoreBudget) and then sleeps; when it wakes, it goes where no other stream works (CorePlace). Errors: the
// first exception of a launched function is kept, later functions are skipped until synchronize() has thrown
// it; events are recorded nevertheless, so nobody hangs. Thread rule: everything from any thread, except
// await() and meter changes: from the work itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/wait_context.h"
#include "engine/device/event.h"
#include "engine/device/stream_meter.h"

namespace braid {

class HostStream {
 public:
  /// Work without an allocation: run(context, argument). Must not throw.
  struct Task {
    void (*run)(void* context, std::uint64_t argument) noexcept;
    void* context;
    std::uint64_t argument;
  };

  /// `cause` is the name under which others book waiting for this stream's work. `input` and `together` may
  /// be null (StreamMeter).
  HostStream(std::string name, std::string cause, const InputClock* input = nullptr,
             BusyUnion* together = nullptr);
  ~HostStream();  // runs what is queued, then joins
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  const std::string& name() const { return name_; }
  const std::string& cause() const { return cause_; }
  int cause_number() const { return cause_number_; }
  StreamMeter& meter() { return meter_; }
  const StreamMeter& meter() const { return meter_; }

  /// Appends a task. Allocates only when the queue grows beyond its largest size so far.
  void enqueue(Task task);
  /// Runs the task on the calling thread, as if it were the stream's, when nothing is queued or running; else
  /// returns false.
  bool try_run_inline(Task task);

  void launch(std::function<void()> function);
  /// Signals `event` with `value` when all earlier work is done.
  void record(Event& event, std::uint64_t value);
  /// Later work starts when `event` has reached `value`. A deadline or stop becomes the stream's error.
  void wait(Event& event, std::uint64_t value, WaitContext context);
  /// Waits until everything enqueued so far has run, then throws the stream's error if there is one.
  /// Throws also: DeadlineExceeded, Cancelled.
  void synchronize(const WaitContext& context);

  /// From work of this stream: waits for an event and books the time under `cause`.
  WaitStatus await(Event& event, std::uint64_t value, const WaitContext& context, int cause) noexcept;

 private:
  static constexpr std::chrono::microseconds kSpin{20};
  static void run_function(void* function, std::uint64_t stream) noexcept;

  void work();
  void finish_task();  // REQUIRES: mu_ is held
  bool spin_for_work() const;
  void keep_error(ErrorPtr error);
  bool has_error() const;

  const std::string name_, cause_;
  const int cause_number_;
  StreamMeter meter_;

  mutable std::mutex mu_;
  std::condition_variable_any changed_;  // goes with mu_: work came, or work is done
  std::vector<Task> ring_;               // guarded by mu_, as what follows; capacity is a power of two
  std::size_t head_ = 0;                 // of the oldest task
  std::size_t count_ = 0;
  bool running_ = false;
  bool stopping_ = false;
  std::uint64_t enqueued_ = 0;
  std::uint64_t completed_ = 0;
  ErrorPtr error_;
  std::atomic<std::uint32_t> arrivals_{0};  // changes with each enqueue, for the spinning thread
  std::thread thread_;                      // last: starts when all of the above is made
};

}  // namespace braid
