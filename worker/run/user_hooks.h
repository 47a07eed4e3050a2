// The job's hooks: programs and libraries of the user's that the leader calls behind steps, when a checkpoint
// is whole, and when the run has ended. A thread of its own calls them, one at a time, in the order of what
// happened, while training goes on. A step whose turn comes while one is busy has no call, which is counted;
// checkpoints wait, up to kMostWaiting of them. What a hook does wrong is said in the log, and never ends the
// run. docs/user/runs.md has the events. Thread rule: the training thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "base/error.h"
#include "worker/run/context.h"
#include "worker/run/hook_calls.h"
#include "worker/run/result.h"

namespace braid::worker {

class UserHooks {
 public:
  static constexpr std::size_t kMostWaiting = 16;

  /// Throws: InvalidArgument naming the hook that cannot be called.
  explicit UserHooks(const RunContext& run);
  /// A call that goes on is ended.
  ~UserHooks();
  UserHooks(const UserHooks&) = delete;
  UserHooks& operator=(const UserHooks&) = delete;

  void step(std::uint64_t step, double loss);
  /// `directory`: empty where this process has written none.
  void checkpoint(std::uint64_t step, const std::string& directory,
                  const std::map<std::string, double>& metrics);
  /// The run has ended, in order or by an error. They return when all calls have ended; each has its
  /// deadline.
  void end(const TrainResult& result);
  void fail(const Error& error);

 private:
  struct Waiting {
    HookCall* hook;
    const char* field;
    HookEvent event;
  };

  HookEvent event(const char* name, std::uint64_t step) const;
  void add(Waiting call);
  void finish(HookEvent event);
  void serve(const std::stop_token& stop);

  const std::string job_, directory_;
  const std::uint64_t every_steps_;
  const std::chrono::milliseconds deadline_;
  std::unique_ptr<HookCall> on_step_, on_checkpoint_, on_end_;  // null: none

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;  // guarded by mutex_, as is what follows
  bool busy_ = false;
  std::uint64_t skipped_ = 0;  // steps without a call
  std::jthread thread_;        // of the calls; none without hooks
};

}  // namespace braid::worker
