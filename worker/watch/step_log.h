// A JSON line a step, for comparing runs: {"step":3,"loss":0.69,"examples":128,"seconds":0.0021}, and of one
// that updated nothing (worker/step/loss_scale.h) "skipped":true; of a model with experts "dropped":17
// (worker/step/mixtures.h). Losses are written so that reading them
// back gives the same bits. In a run directory evaluations have lines, too:
// {"step":100,"evaluation":{"auc":0.7}}, and a run that is resumed adds to its lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace braid::worker {

/// `pattern` with "%r" replaced by the role.
std::string with_role(std::string pattern, const std::string& role);

class StepLog {
 public:
  /// An empty path logs nothing. `goes_on`: lines that are there stay. Throws: InvalidArgument when the file
  /// cannot be made.
  explicit StepLog(const std::string& path, bool goes_on = false);
  ~StepLog();
  /// Step `first` is the next one: lines of it and later ones, of a run that was lost behind its checkpoint,
  /// go.
  void begin(std::uint64_t first);
  /// A file that cannot be written any more, as on a full disk, ends with a warning.
  void write(std::uint64_t step, float loss, std::int64_t examples, double seconds, bool skipped = false,
             std::optional<std::int64_t> dropped = {});
  /// Lines are in the file from now on, whatever happens to the process. Without it they are within a second,
  /// when the next one is written.
  void flush();
  /// `measured`: a JSON object.
  void write_evaluation(std::uint64_t step, const std::string& measured);

 private:
  void add(const std::string& line, std::uint64_t step);
  void give_up(std::uint64_t step);

  std::string path_;
  bool goes_on_ = false;
  std::uint64_t last_ = 0;                              // step of the last line
  std::chrono::steady_clock::time_point flushed_ = {};  // when
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace braid::worker
