// A JSON line a step, for comparing runs: {"step":3,"loss":0.69,"examples":128,"seconds":0.0021}, and of one
// that updated nothing (worker/loss_scale.h) "skipped":true. Losses are written so that reading them back
// gives the same bits.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace braid::worker {

/// `pattern` with "%r" replaced by the role.
std::string with_role(std::string pattern, const std::string& role);

class StepLog {
 public:
  /// An empty path logs nothing. Throws: InvalidArgument when the file cannot be made.
  explicit StepLog(const std::string& path);
  /// A file that cannot be written any more, as on a full disk, ends with a warning.
  void write(std::uint64_t step, float loss, std::int64_t examples, double seconds, bool skipped = false);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace braid::worker
