// How long a run waits: for its peers to come, for a step, for peers inside of a step. Thread rule: safe from
// any thread.
#pragma once

#include <chrono>

#include "base/wait_context.h"
#include "worker/process/stop_grace.h"
#include "worker/run/context.h"

namespace braid::worker {

class RunWaits {
 public:
  /// `grace` ends the waits of steps some time after a request to stop; it outlives this.
  RunWaits(const RunContext& run, const StopGrace& grace) : run_(run), grace_(grace) {}

  /// For what all processes do together outside of steps.
  WaitContext start() const;
  /// The same before the first step, where a request to stop need not wait.
  WaitContext first() const;
  /// Of an elastic job: until this worker is in its next world. Whoever decides that has shorter deadlines.
  WaitContext next_world() const;
  /// Of a step. Alone there is no peer to wait for, only work; with peers, the ops that wait for them have
  /// the deadline of the job, and name who is missing, so this one lies a little behind.
  WaitContext step() const;
  /// For a batch, which may wait for a file that has not come yet, or for the batches of others.
  WaitContext input() const;
  std::chrono::nanoseconds step_time() const;
  /// How long peers may keep a step waiting.
  WaitContext peers() const;

 private:
  bool alone() const;

  const RunContext run_;
  const StopGrace& grace_;
};

}  // namespace braid::worker
