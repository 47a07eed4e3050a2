// What strategy ops need of the worker beside their communicator or client; provided through the runtime's
// Services.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "worker/process/stop_signal.h"

namespace braid::worker {

/// What a worker says about stopping, in each step. Votes are added up over workers, exactly: one that was
/// asked to stop outweighs any number of those that want the next world of an elastic job, and these outweigh
/// the leader, that has what it wanted.
inline constexpr float kStopVote = 1, kNextWorldVote = 1.0F / (1 << 12), kFinishVote = 1.0F / (1 << 16);
inline constexpr float kLeastStopVote = 0.5F;
/// Of a sum of votes.
inline bool wants_stop(float votes) { return votes >= kLeastStopVote; }
inline bool wants_next_world(float votes) { return std::fmod(votes, kStopVote) >= kNextWorldVote; }
inline bool wants_finish(float votes) { return std::fmod(votes, kNextWorldVote) > 0; }

struct StepServices {
  std::chrono::nanoseconds peer_deadline;  // of one wait for peers or servers inside a step
  std::shared_ptr<const StopFlag> stop;
  std::atomic<bool> finish = false;  // the leader's wish that all end: nothing better is to be expected
  std::atomic<std::uint64_t> total_steps{0};    // of the job; set before the strategy starts
  bool stops_with_all = true;                   // a request to stop is one to all workers
  std::function<bool()> wants_next_world = {};  // of elastic jobs; set before the first step
  float stop_vote() const {
    if (stops_with_all && stop->requested()) return kStopVote;
    if (finish) return kFinishVote;
    return wants_next_world && wants_next_world() ? kNextWorldVote : 0.0F;
  }
  /// Where collectives run on the device: this process's stop vote for it to read, a float in page-locked
  /// memory that the strategy sets before each step. Else null.
  std::shared_ptr<std::byte[]> vote = nullptr;
};

}  // namespace braid::worker
