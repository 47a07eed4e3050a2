// The checkpoints of a run one after another, for a reader that is slower than the workers write, as an
// evaluator may be. It has a hidden directory beside them, where who prunes a checkpoint leaves links to its
// files (hard links, which take no room; CheckpointStore::remove). What is being read is linked there, too.
// Where the file system has no hard links checkpoints are read in place, and one that goes before its turn is
// lost, which is said. Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/checkpoint.h"

namespace braid::worker {

class HeldCheckpoints {
 public:
  /// From now on nothing that is pruned is lost. `look`: the whole checkpoints of the run that is followed,
  /// oldest first. When it tells of another run, what has not been taken of the one before is forgotten.
  HeldCheckpoints(std::filesystem::path root, std::function<std::vector<CheckpointInfo>()> look);
  ~HeldCheckpoints();
  HeldCheckpoints(const HeldCheckpoints&) = delete;
  HeldCheckpoints& operator=(const HeldCheckpoints&) = delete;

  /// The next one, in the order of steps; waits so long for one. The one before is let go. Throws: what
  /// `look` throws.
  std::optional<CheckpointInfo> take(std::chrono::milliseconds patience);

 private:
  bool may_have_changed();
  std::optional<CheckpointInfo> find_next();
  std::vector<CheckpointInfo> left_here() const;
  bool is_due(const CheckpointMeta& meta) const;
  std::optional<CheckpointInfo> linked(CheckpointInfo info);

  // Set once.
  const std::filesystem::path root_, links_;
  const std::function<std::vector<CheckpointInfo>()> look_;

  std::optional<std::filesystem::file_time_type> changed_at_;  // absent: it has to look in any case
  std::chrono::steady_clock::time_point looked_at_;
  std::optional<CheckpointRun> run_;   // that is followed
  std::optional<std::uint64_t> last_;  // step of that run that was taken last
  bool links_work_ = true;
};

}  // namespace braid::worker
