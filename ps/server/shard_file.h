// A server's shard of a checkpoint: writing a snapshot, and filling tables from the shards of any number of
// servers. docs/design/formats/wire.md, "Shards of parameter servers", names the entries. Thread rule: pure
// functions on what the caller owns.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/checkpoint.h"
#include "ps/server/snapshot.h"

namespace braid::ps {

/// "ps-3.shard"
std::string shard_file_name(int server);

/// Writes `directory`/shard_file_name(server). `run`: id of the run that the checkpoint is of. Throws:
/// Unavailable (disk).
ShardInfo write_shard(const Snapshot& snapshot, int servers, const std::filesystem::path& directory,
                      const std::string& run);

struct RestoredState {
  std::uint64_t step = 0;
  std::vector<WorkerMarks> marks;  // the pushes that are in the tables
};

/// Fills `tables`, which nobody else has yet, with its part of the checkpoint. Slots that the checkpoint does
/// not have keep their initial values. Throws: InvalidArgument when the checkpoint lacks a table or a shard,
/// has another shape, or shards of two runs (what, and the file); DataLoss for damage.
RestoredState read_shards(const std::filesystem::path& directory, ServerTables& tables);

}  // namespace braid::ps
