// What a person sees while a job loads its data and trains: on a terminal one line that is redrawn
// (worker/watch/progress_line.h), with the log above it; else a plain line with the time of day every now and
// then. Standard error, so that standard output keeps results alone. The variable BRAID_PROGRESS (bar, lines,
// off) overrides the choice. Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "worker/watch/progress_line.h"

namespace braid::worker {

enum class ProgressMode { Bar, Lines, Off };

/// What BRAID_PROGRESS says, else a bar on a terminal that can redraw a line. Throws: InvalidArgument for
/// another value.
ProgressMode progress_mode();

/// When to draw again.
class ProgressClock {
 public:
  /// `interval_seconds` 0: 0.2 for a bar, 5 for lines.
  ProgressClock(ProgressMode mode, double interval_seconds);
  /// Whether the interval is over, which begins anew then. The first time it is.
  bool is_due();
  double elapsed_seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::duration interval_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_;
};

class Progress {
 public:
  Progress(ProgressMode mode, std::uint64_t first_step, std::uint64_t total_steps, double interval_seconds);
  ~Progress();  // its line stays
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Steps [first, step] are done, which took `step_seconds`, pauses left out; `examples` are those of the
  /// last one.
  void update(std::uint64_t step, double loss, std::int64_t examples, double step_seconds);
  /// The newest of an evaluation.
  void set_metric(const std::string& name, double value);
  /// Ends the bar's line. Idempotent.
  void finish();

 private:
  void draw() const;

  const ProgressMode mode_;
  const std::uint64_t first_;
  ProgressClock clock_;
  ProgressState state_;
  std::int64_t examples_ = 0;
};

/// Rows while files are read. Nothing is seen of what takes less than a moment.
class LoadingProgress {
 public:
  /// `what`: "train_files: 3 files, 127.3 MiB".
  LoadingProgress(ProgressMode mode, std::string what);
  ~LoadingProgress();  // its line goes
  LoadingProgress(const LoadingProgress&) = delete;
  LoadingProgress& operator=(const LoadingProgress&) = delete;

  void update(std::int64_t rows);
  double elapsed_seconds() const { return clock_.elapsed_seconds(); }

 private:
  const ProgressMode mode_;
  const std::string what_;
  ProgressClock clock_;
};

}  // namespace braid::worker
