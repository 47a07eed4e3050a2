// What a person sees while a job trains: on a terminal one line that is redrawn (bar, step, loss, examples/s,
// time left), else a plain line every now and then. Standard error, so that standard output keeps results
// alone. The variable BRAID_PROGRESS (bar, lines, off) overrides the choice. Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace braid::worker {

class Progress {
 public:
  enum class Mode { Bar, Lines, Off };

  /// `interval_seconds` 0: 0.2 on a terminal, 1 otherwise.
  Progress(Mode mode, std::uint64_t first_step, std::uint64_t total_steps, double interval_seconds);

  /// Steps [first, step] are done.
  void update(std::uint64_t step, double loss, std::int64_t examples);
  /// Ends the bar's line. Idempotent.
  void finish();
  /// What BRAID_PROGRESS says, else a bar on a terminal. Throws: InvalidArgument for another value.
  static Mode choose_mode();

 private:
  void draw(double loss);

  // Set once.
  Mode mode_;
  std::uint64_t first_, total_;
  std::chrono::steady_clock::duration interval_;
  std::chrono::steady_clock::time_point begin_;

  std::chrono::steady_clock::time_point drawn_;
  std::uint64_t done_ = 0;
  std::int64_t examples_ = 0;
  bool open_line_ = false;
};

}  // namespace braid::worker
