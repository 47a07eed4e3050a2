// Where a stream's time goes. At any moment a stream is in exactly one state: busy (its thread runs kernels,
// or an asynchronous node is in flight), waiting for an event (by the cause of the event's producer), or
// idle. The times therefore add up to the wall time since the meter was made.
//
// Time in which the queue is empty is "idle", except for the part in which the process waited for input
// (InputClock), which is "input". Cost: two clock reads and an uncontended lock a change of state, nothing a
// kernel. Thread rule: everything from any thread; run(), wait() and idle() from one at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "engine/device/busy_union.h"

namespace braid {

using MeterTime = std::chrono::steady_clock::time_point;

/// How long the process has waited for input, as a function of time.
/// Thread rule: begin() and end() from one thread, in turn; total() from any.
class InputClock {
 public:
  void begin(MeterTime now);
  void end(MeterTime now);
  std::chrono::nanoseconds total(MeterTime now) const;

 private:
  mutable std::mutex mu_;
  std::chrono::nanoseconds sum_{0};  // guarded by mu_, as what follows
  bool waiting_ = false;
  MeterTime since_;
};

/// A small number for a cause's name; the same name has the same number in the whole process.
/// Throws: Internal when there are more than kMaxCauses names.
inline constexpr int kMaxCauses = 16;
inline constexpr int kCauseIdle = 0;
inline constexpr int kCauseInput = 1;
int cause_id(const std::string& name);

struct MeterReading {
  std::chrono::nanoseconds busy{0};
  std::array<std::chrono::nanoseconds, kMaxCauses> waiting{};  // by cause
  std::uint64_t launches = 0;
  std::uint64_t bytes = 0;
  std::uint64_t waits = 0;

  std::map<std::string, double> wait_seconds() const;  // causes that occurred, and "idle"
};

class StreamMeter {
 public:
  /// `input` and `together`, which is told when the stream is busy, may be null; they outlive the meter.
  explicit StreamMeter(const InputClock* input, BusyUnion* together = nullptr);

  void run(MeterTime now);
  void wait(int cause, MeterTime now);
  void idle(MeterTime now) { wait(kCauseIdle, now); }
  /// Nodes that were started, and bytes that they read and wrote.
  void add_work(std::uint64_t launches, std::uint64_t bytes) {
    launches_.fetch_add(launches, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  /// An asynchronous node was issued, and completed.
  void flight_begin(MeterTime now);
  void flight_end(MeterTime now);

  /// Includes the state that still lasts, up to `now`.
  MeterReading read(MeterTime now) const;

 private:
  /// Books the time since the last change. REQUIRES: mu_ is held.
  void settle(MeterTime now);
  bool busy() const { return state_ == kRunning || flights_ > 0; }
  /// Tells `together_` of a change from `before`. REQUIRES: mu_ is held.
  void tell(bool before, MeterTime now);

  static constexpr int kRunning = -1;
  const InputClock* const input_;
  BusyUnion* const together_;
  mutable std::mutex mu_;
  MeterReading sums_;       // guarded by mu_, as what follows; but not launches and bytes
  int state_ = kCauseIdle;  // kRunning, or the cause of the wait
  int flights_ = 0;
  MeterTime since_;
  std::chrono::nanoseconds input_since_{0};
  std::atomic<std::uint64_t> launches_{0}, bytes_{0};
};

}  // namespace braid
