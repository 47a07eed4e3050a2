// Checkpoint files: one file a shard, made of CRC-checked blocks, and a manifest that is written last and
// makes the checkpoint whole. docs/design/formats/checkpoint.md has the grammar. Knows names, types, shapes
// and bytes; not what they mean.
//
//   <root>/step-000000000120/            written as .tmp-step-000000000120-<pid>, synced, then renamed
//     worker-0.shard  ps-0.shard ...     entries, then an index, then a footer
//     MANIFEST                           text: CheckpointManifest of proto/checkpoint.proto, which has the
//                                        bytes and CRC of each shard
//   <root>/RUN                           text: the run that writes here (base/checkpoint_run.h)
//
// Thread rule: one object, one thread. Throws: DataLoss (damage: file, entry, offset), Unavailable (disk:
// path, errno text), InvalidArgument (what the caller asks for is not there, or does not fit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/checkpoint_run.h"
#include "base/dtype.h"

namespace braid {

/// One named array in a shard. `name` is the variable's logical name; slots are "<variable>/<slot>".
struct CheckpointEntry {
  std::string name;
  DType dtype = DType::Float32;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

struct ShardInfo {
  std::string file;  // relative to the checkpoint's directory
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;  // of the shard's index, which holds the CRC of every block
};

class ShardWriter {
 public:
  explicit ShardWriter(const std::filesystem::path& file);
  ~ShardWriter();  // an unfinished file is removed
  /// Appends one entry. `data` is written in blocks of 1 MiB, each with its CRC-32C. Throws: InvalidArgument
  /// for a name that is there already, or a shape and bytes that do not fit.
  void add(const CheckpointEntry& entry, std::span<const std::byte> data);
  /// Writes index and footer and syncs the file. Nothing may be added afterwards.
  ShardInfo finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ShardReader {
 public:
  /// Reads and checks footer and index.
  explicit ShardReader(const std::filesystem::path& file);
  ~ShardReader();
  const std::vector<CheckpointEntry>& entries() const;
  const CheckpointEntry* find(const std::string& name) const;
  ShardInfo info() const;
  /// REQUIRES: out.size() == entry.bytes. Every block's CRC is checked.
  void read(const std::string& name, std::span<std::byte> out) const;
  std::vector<std::byte> read(const std::string& name) const;
  /// Reads everything once and checks the CRC of every block.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What the manifest says beside the list of shards.
struct CheckpointMeta {
  std::uint64_t step = 0;  // the number of steps whose updates are in the checkpoint
  CheckpointRun run{};
  std::uint64_t generation = 0;
  std::uint64_t plan_hash = 0;
  std::string job_name{};
  std::map<std::string, std::string> cursors{};  // "worker-0" -> serialized input cursor
  std::map<std::string, double> metrics{};       // e.g. "loss", "auc"
  std::map<std::string, std::string> attributes{};
};

struct CheckpointInfo {
  CheckpointMeta meta;
  std::vector<ShardInfo> shards;
  std::filesystem::path directory;
};

/// How a job begins in a directory that may have checkpoints.
enum class RunStart {
  New,        // a run of its own: refused where checkpoints are
  Resume,     // goes on with the run that the directory is in; a new one where there is none
  Overwrite,  // a run of its own, whose first whole checkpoint is the end of those before it
};

/// Hard links to the files of a checkpoint in the new directory `to`, which stay when it is removed; the
/// manifest comes last. Result: why not all could be made; none when they were.
std::error_code link_checkpoint(const CheckpointInfo& info, const std::filesystem::path& to);

/// The checkpoints under one root directory. One run writes at a time; nothing but the first checkpoint of a
/// run that overwrites ever removes what belongs to another run.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path root);

  /// The run that is to write here, which the file RUN names from now on. Throws: InvalidArgument for a New
  /// one where checkpoints are, whole or damaged, with the ways out; Unavailable (disk).
  CheckpointRun begin_run(RunStart how);
  /// The one that RUN names, or of the latest checkpoint where that is later or there is no RUN.
  std::optional<CheckpointRun> current_run() const;

  /// A fresh temporary directory for step `step`, into which all shards of the checkpoint are written. An
  /// older unfinished one of the same step is removed.
  std::filesystem::path begin(std::uint64_t step);
  /// Writes the manifest, syncs, renames the directory to its final name (replacing one of the same step) and
  /// syncs the root. Then removes the checkpoints of earlier runs, if meta.run overwrites them. Throws:
  /// InvalidArgument when another run has taken over the directory, or has a checkpoint of this step that is
  /// not to be overwritten.
  CheckpointInfo commit(const std::filesystem::path& temporary, const CheckpointMeta& meta,
                        const std::vector<ShardInfo>& shards);
  /// Whole checkpoints, by run and then by step, oldest first. Damaged ones are left out, each with a
  /// warning.
  std::vector<CheckpointInfo> list() const;
  /// Those of one run.
  std::vector<CheckpointInfo> list(const CheckpointRun& run) const;
  /// Of the latest run that has a whole checkpoint, the one of the most steps.
  std::optional<CheckpointInfo> newest() const;
  /// Removes the oldest whole checkpoints of the latest run that has any so that `keep` remain, and
  /// unfinished ones of steps below its newest. keep == 0 keeps all.
  void prune(std::size_t keep);
  /// Removes a checkpoint of this root; interrupted, it leaves an unfinished one and no damaged one. Who
  /// reads the checkpoints one after another has a directory in the root whose name begins with
  /// kReaderPrefix: it first gets links to the files there, in a directory whose name begins with
  /// kPrunedPrefix. A reader that has 32 of these, or one without hard links, loses what is removed.
  void remove(const std::filesystem::path& directory);
  static constexpr const char* kReaderPrefix = ".evaluator-";
  static constexpr const char* kPrunedPrefix = "pruned-";
  const std::filesystem::path& root() const { return root_; }

 private:
  std::vector<std::filesystem::path> finished() const;
  void refuse_used() const;
  void leave_to_readers(const std::filesystem::path& directory) const;
  void check_owner(const CheckpointMeta& meta, const std::filesystem::path& final) const;
  void remove_runs_before(const CheckpointRun& run);

  std::filesystem::path root_;
};

/// Reads and fully checks one checkpoint's manifest, and of each shard its presence, size and index.
CheckpointInfo read_checkpoint(const std::filesystem::path& directory);

}  // namespace braid
