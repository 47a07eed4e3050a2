// The rows of a HYBRID job's tables in checkpoints: each rank writes those that it holds, as
// "<table>@keys", "<table>@rows" and "<table>/<slot>@rows" of its file tables-<rank>.shard, which is how
// parameter servers write theirs (docs/formats/checkpoint.md); a table by columns is first turned into one by
// rows. Read are the forms of all strategies: such rows, of however many writers, and whole tables. Thread
// rule: one thread.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/checkpoint.h"
#include "base/wait_context.h"
#include "engine/exec/runtime.h"
#include "worker/strategies/table_shard.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

std::string tables_file(int rank);

/// Writes this rank's file. All ranks call it together. Throws: Unavailable (disk: path, errno text), what
/// the communicator throws.
ShardInfo write_tables(const std::vector<TableShard>& tables, VariableStore& store,
                       comm::Communicator& communicator, const std::filesystem::path& directory,
                       const WaitContext& wait);

/// Gives the rows of this rank their first values, as they are in a table that one process holds. `given`:
/// whole tables, by name, that begin with other values than those of their initialiser.
void initialize_tables(const std::vector<TableShard>& tables, const std::map<std::string, Tensor>& given,
                       std::uint64_t seed, Runtime& runtime);

/// The rows of this rank that the checkpoint has; the others keep what they hold, and slots that it lacks
/// too. Throws: InvalidArgument with the step and the table: not there, or of another shape; DataLoss.
void restore_tables(const std::vector<TableShard>& tables, const CheckpointInfo& info, VariableStore& store);

}  // namespace braid::worker
