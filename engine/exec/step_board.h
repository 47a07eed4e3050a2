// The steps in flight of one instance: a slot for each, with what changes from step to step, what is left to
// do, and its first error. Steps are numbered by `sequence` (0, 1, 2, ... in the order of their starts); the
// number that the user gave is in params.step.
//
// Errors: the first one of a step wins. From then on streams skip the nodes of that step and of all later
// ones, but still signal their events, so nobody hangs; kernels are asked to stop through the step's
// WaitContext. Thread rule: as noted; streams and completions call failed(), fail(), note_write() and
// part_done().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/error.h"
#include "base/wait_context.h"
#include "engine/device/event.h"
#include "engine/exec/instance.h"

namespace braid {

struct StepSlot {
  StepParams params;
  WaitContext wait;  // the step's deadline; stops when the step fails or its user asks
  std::vector<Tensor> feeds;
  std::shared_ptr<void> keep_alive;
  std::shared_ptr<std::byte[]> results;

  std::atomic<int> parts_left{0};            // streams and asynchronous ops that are not at their end
  std::atomic<bool> wrote{false};            // an op that writes a variable has started
  std::atomic<std::int64_t> first_issue{0};  // steady clock, ns
  std::atomic<std::int64_t> last_end{0};
  Event done;  // reaches sequence + 1

  std::mutex mu;
  ErrorPtr error;  // guarded by mu, as what follows
  std::uint64_t sequence = 0;
  bool running = false;

  struct Stop {
    std::stop_source* source;
    void operator()() const noexcept { source->request_stop(); }
  };
  std::stop_source stop;
  std::optional<std::stop_callback<Stop>> on_user_stop;
};

class StepBoard {
 public:
  explicit StepBoard(int slots) : slots_(static_cast<std::size_t>(slots)) {}

  int size() const { return static_cast<int>(slots_.size()); }
  int index(std::uint64_t sequence) const { return static_cast<int>(sequence % slots_.size()); }
  StepSlot& slot(std::uint64_t sequence) { return slots_[sequence % slots_.size()]; }
  StepSlot& at(int index) { return slots_[static_cast<std::size_t>(index)]; }

  /// Whether nodes of this step are to be skipped.
  bool failed(std::uint64_t sequence) const noexcept {
    return first_failed_.load(std::memory_order_relaxed) <= sequence;
  }
  /// Keeps the error unless the step has one, and stops this and all later steps.
  void fail(std::uint64_t sequence, ErrorPtr error) noexcept;
  ErrorPtr error_of(std::uint64_t sequence);

  /// A stream has reached the end of its part of the step, or an asynchronous op has completed.
  void part_done(std::uint64_t sequence) noexcept;

  /// Makes the slot ready for a step of `parts` parts. REQUIRES: the slot is free.
  void begin(std::uint64_t sequence, StepRequest request, const WaitContext& wait, int parts);
  /// Lets go of what the user gave. REQUIRES: the step is done.
  void release(std::uint64_t sequence);
  /// After a failure, when no step is in flight any more: all steps may run again.
  void reset();
  /// Asks the kernels of all steps from `sequence` on to stop.
  void request_stop(std::uint64_t sequence) noexcept;

  /// Threads that are inside the instance; it must not go away before they have left.
  void enter() noexcept { inside_.fetch_add(1, std::memory_order_relaxed); }
  void leave() noexcept { inside_.fetch_sub(1, std::memory_order_release); }
  bool empty() const noexcept { return inside_.load(std::memory_order_acquire) == 0; }

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  std::vector<StepSlot> slots_;
  std::atomic<std::uint64_t> first_failed_{kNone};
  std::atomic<int> inside_{0};
};

}  // namespace braid
