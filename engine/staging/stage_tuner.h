// Chooses `capacity` and `num_threads` of a stage from what it measures, for AUTO. The first window sets both
// by rule: as many threads as making a batch takes steps, and room for as many batches as fit into a step.
// Later windows correct that while takers still wait: more threads when those that there are have no time
// left, more room when they have (then making a batch takes longer at times). Threads that brought nothing
// are taken back. Owns no thread and no clock. Thread rule: one thread at a time.
//
// Where steps are short those windows are some milliseconds, in which the device's first launches lie too. So
// it looks again, at windows of a length of time, and takes more threads or twice the room at a time until
// takers are served, or what it took last brought nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

namespace braid {

struct StageSizes {
  int capacity = 1;
  int threads = 1;
  friend bool operator==(const StageSizes&, const StageSizes&) = default;
};

/// What a window of takes has shown; times are means a batch.
struct StageWindow {
  double make_seconds = 0;       // in the producer; 0 where none was made
  double step_seconds = 0;       // of the taker, from getting a batch to asking for the next
  double take_wait_seconds = 0;  // of the taker
  double room_share = 0;         // of the threads' time: waiting for room
};

class StageTuner {
 public:
  static constexpr int kSkippedTakes = 2;  // the first batches find an empty buffer
  static constexpr int kWindowTakes = 8;
  static constexpr int kWindows = 6;  // it is settled after 2 + 6 * 8 = 50 takes at the latest
  // Takers that wait for less than this part of a step, or than a thread takes to wake up, are served.
  static constexpr double kEnough = 0.02;
  static constexpr double kWakeUpSeconds = 20e-6;
  // Looking again: windows of so much time and kWindowTakes takes or more, over which a wait is a mean of
  // many. What was read ahead may serve takers for a while, and a thread that shares memory with a busy step
  // gets slower: so windows in a row without starved takers double in length, and so many are the last.
  static constexpr std::chrono::milliseconds kLook{50};
  static constexpr double kShortestWaitSeconds = 3e-6;
  static constexpr int kServedLooks = 9;

  struct Limits {
    int max_capacity = 32;
    int max_threads = 1;
  };

  /// What is not to be tuned keeps the size it begins with.
  StageTuner(StageSizes begin, bool tune_capacity, bool tune_threads, Limits limits);

  /// The sizes from here on.
  StageSizes update(const StageWindow& measured);
  const StageSizes& sizes() const { return sizes_; }
  bool settled() const { return windows_ >= kWindows; }
  /// How long the window of the next look is at least.
  std::chrono::milliseconds look() const {
    return kLook * (1 << std::clamp(kServedLooks - looks_left_, 0, 30));
  }
  /// The sizes from here on, once it is settled.
  StageSizes look_again(const StageWindow& measured);
  bool done() const { return settled() && looks_left_ <= 0; }
  /// "capacity 4, 2 threads: making a batch takes 3.1 ms, a step 1.7 ms, waiting 0.0 ms".
  std::string report() const;

 private:
  StageSizes by_rule(const StageWindow& window) const;
  StageSizes with_more(const StageWindow& window) const;
  StageSizes corrected(const StageWindow& window) const;

  // Set once.
  const bool tune_capacity_, tune_threads_;
  const Limits limits_;

  StageSizes sizes_;
  int windows_ = 0;
  StageWindow last_;
  int added_ = 0;  // threads, by the update before

  int looks_left_ = kServedLooks;         // in a row that find takers served
  std::optional<StageSizes> taken_from_;  // what it had before the look before took more
};

}  // namespace braid
