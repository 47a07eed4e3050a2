// The tables of a server from a checkpoint that no servers have written, or not all of it: what workers of
// the strategies LOCAL, ALLREDUCE, HYBRID and PS_ALLREDUCE store, whole variables or rows of tables by key.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "ps/server/server_tables.h"

namespace braid::ps {

/// Fills the server's part of all tables. A slot that is not there starts at its initial value. Result: the
/// number of steps that are in the values. Throws: InvalidArgument for a table that is missing or of another
/// size; DataLoss.
std::uint64_t read_values(const std::filesystem::path& directory, ServerTables& tables);

}  // namespace braid::ps
