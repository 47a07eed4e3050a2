// Runs: which checkpoints belong together. A run begins at step 0, gets a number and an id, and is gone on
// with by everyone who resumes it. The file RUN in a checkpoint directory names the run that writes there,
// also before its first checkpoint. docs/design/formats/checkpoint.md has the rules. Thread rule: values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace braid::proto {
class CheckpointRun;
}

namespace braid {

struct CheckpointRun {
  std::uint64_t number = 0;  // counts the runs of a directory from 1; 0: from before runs were told apart
  std::string id{};          // 16 hexadecimal digits, drawn when it began; empty with number 0
  std::int64_t begun = 0;    // seconds since 1970
  bool overwrites = false;   // once it has a whole checkpoint, those of the runs before it are removed

  bool same_as(const CheckpointRun& other) const { return number == other.number && id == other.id; }
  /// The one that began later is the later one.
  bool before(const CheckpointRun& other) const;
  /// "run 2, begun 2026-11-23 06:40:12 UTC", or "a run from before runs had numbers".
  std::string describe() const;
};

/// A new one, begun now.
CheckpointRun make_run(std::uint64_t number);

/// What <root>/RUN says; nothing when there is none, or, with a warning, when it is damaged.
std::optional<CheckpointRun> read_run_file(const std::filesystem::path& root);
/// Throws: Unavailable (disk).
void write_run_file(const std::filesystem::path& root, const CheckpointRun& run);

void to_proto(const CheckpointRun& run, proto::CheckpointRun* out);
CheckpointRun from_proto(const proto::CheckpointRun& in);

}  // namespace braid
