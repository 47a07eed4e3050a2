// A few steps of a running job, recorded because somebody asked over HTTP: /trace/start?steps=N, then
// /trace.json?window=ID until it is there. One window at a time; who asks meanwhile gets the same one. A
// trace that the job keeps anyway (metrics.trace_file) goes on recording. Thread rule: step_ended from the
// training loop; the rest from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace braid {
class Trace;
}

namespace braid::worker {

class TraceWindow {
 public:
  static constexpr std::uint64_t kMostSteps = 1000;
  static constexpr std::chrono::seconds kLongest{30};  // then it ends with what there is

  /// `trace` outlives the window's use, which ends with attach(nullptr). `process`: its title.
  void attach(Trace* trace, std::string process, bool records_always);
  /// A device is sampled beside: the window ends when that has been done, too.
  void set_samples_device(bool samples) { samples_device_ = samples; }

  /// The window's number. Nothing when there is no trace. `first`: the first step, of several processes the
  /// same; where that is too soon, as 0 is, the first one that is recorded as a whole.
  std::optional<std::uint64_t> start(std::uint64_t steps, std::uint64_t last_finished,
                                     std::uint64_t first = 0);
  void step_ended(std::uint64_t step);
  /// Ends a window that is over or too long; called now and then.
  void tick();

  /// Whoever samples the device shall do so now, and says so when it is done.
  bool wants_device() const { return wants_device_.load(std::memory_order_relaxed); }
  void device_done();

  enum class State { Unknown, Recording, Ready };
  State state(std::uint64_t window) const;
  /// REQUIRES: Ready. Empty where the trace has gone.
  std::string json() const;

 private:
  void end_if_over();  // REQUIRES: mu_

  mutable std::mutex mu_;
  Trace* trace_ = nullptr;  // guarded by mu_, as what follows
  std::string process_;
  bool records_always_ = false;
  std::uint64_t window_ = 0;
  bool recording_ = false;
  std::uint64_t first_ = 0, last_ = 0, finished_ = 0;
  std::chrono::steady_clock::time_point begin_, end_;
  std::atomic<bool> active_{false};  // recording_, for the training loop
  std::atomic<bool> wants_device_{false};
  std::atomic<bool> samples_device_{false};
};

}  // namespace braid::worker
