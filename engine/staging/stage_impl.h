// The inside of a Stage: its threads (stage_threads.cc), the order in which they read, what it counts, and
// what AUTO looks at (stage_auto.cc). For the files of Stage only.
//
// Locks, outermost first: threads_mu, tune_mu, Source::reading, mu, the buffer's own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "engine/staging/stage.h"
#include "engine/staging/stage_buffer.h"
#include "engine/staging/stage_pools.h"
#include "engine/staging/stage_tuner.h"

namespace braid {

struct Stage::Impl {
  /// A producer and the order in which its threads read.
  struct Source {
    StageProducer producer;
    std::mutex reading;  // held from begin() to the end of read(), so records and tickets have one order
    bool ended = false;  // guarded by reading
  };

  Impl(StageOptions o, std::vector<StageProducer> producers, const StageSession& s, Observer obs);

  /// `again`: where it had ended, instead of at `first_ticket`.
  void open(std::uint64_t first_ticket, bool again);
  void cancel();
  void wake_turns();
  void spawn(int count);
  void change_threads(int count);

  void run(int thread);
  enum class Outcome { Done, Skipped, Ended };
  Outcome make_one(int thread);
  std::optional<std::uint64_t> begin(int thread);
  bool read(int thread, StageCall& call, Batch& record, Outcome& outcome,
            std::chrono::steady_clock::time_point& begun);
  void work(const StageCall& call, FunctionRef<void()> part);
  Outcome handle_error(int thread, std::uint64_t ticket);
  std::chrono::milliseconds backoff(int thread) const;
  int turn_after(int thread) const;

  void tune(double waited_seconds);
  bool window_is_over(std::chrono::steady_clock::time_point time) const;
  StageThreadStats sum_threads() const;
  StageWindow measure(const StageThreadStats& now, std::chrono::steady_clock::time_point time) const;

  Source& source_of(int thread) { return *sources[joined ? static_cast<std::size_t>(thread) : 0]; }

  // Set once.
  const StageOptions options;
  const StageSession session;
  const Observer observer;
  const bool joined;
  const bool takes_turns;                        // joined and ordered
  std::vector<std::unique_ptr<Source>> sources;  // one, or one a thread
  StagePool* pool = nullptr;

  StageBuffer buffer;

  mutable std::mutex mu;
  std::condition_variable turn_changed;
  // Guarded by mu.
  std::stop_source stop;  // of this life
  std::vector<StageThreadStats> stats;
  std::map<ErrorCode, std::uint64_t> ignored;
  std::vector<int> in_a_row;  // ignored errors, by thread
  std::vector<bool> alive;    // by thread
  int target_threads = 0;     // threads from here on end themselves
  int turn = 0;               // the thread that begins the next ticket, where they take turns

  std::mutex threads_mu;
  std::vector<std::jthread> threads;  // guarded by threads_mu

  std::atomic<bool> tuning{false};
  mutable std::mutex tune_mu;
  // Guarded by tune_mu: what AUTO looks at.
  StageTuner tuner;
  std::uint64_t tuned_takes = 0;
  double window_wait_seconds = 0;
  int window_takes = 0;
  std::set<std::thread::id> window_takers;
  std::chrono::steady_clock::time_point window_begin;
  StageThreadStats window_threads;  // their sum when the window began
  std::string report;
};

}  // namespace braid
