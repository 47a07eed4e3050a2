// What strategy ops need of the worker beside their communicator or client; provided through the runtime's
// Services.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/process/stop_signal.h"

namespace braid::worker {

/// What a worker says about stopping, in each step. Votes are added up over workers: one that was asked to
/// stop outweighs any number of those that only have what they wanted.
inline constexpr float kStopVote = 1, kFinishVote = 1.0F / (1 << 16), kLeastStopVote = 0.5F;

struct StepServices {
  std::chrono::nanoseconds peer_deadline;  // of one wait for peers or servers inside a step
  std::shared_ptr<const StopFlag> stop;
  std::atomic<bool> finish = false;  // the leader's wish that all end: nothing better is to be expected
  std::atomic<std::uint64_t> total_steps{0};  // of the job; set before the strategy starts
  float stop_vote() const { return stop->requested() ? kStopVote : finish ? kFinishVote : 0.0F; }
  /// Where collectives run on the device: this process's stop vote for it to read, a float in page-locked
  /// memory that the strategy sets before each step. Else null.
  std::shared_ptr<std::byte[]> vote = nullptr;
};

}  // namespace braid::worker
