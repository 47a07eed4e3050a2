// Plans of tables by their bytes alone: where the planner (table_planner.h) starts from, and what it is
// measured against. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/strategies/planned_table.h"

namespace braid::worker {

/// What is replicated unless the job says otherwise: bytes of a table with its slots.
inline constexpr std::int64_t kReplicateBytes = 256 << 10;

/// Gives tables with plan AUTO one, and all with plan TABLE an owner: small ones are replicated and others
/// spread by rows; where all ids travel (`sends_all`) they are whole. While a worker has more than `limit`
/// bytes (0: no limit), the largest of them is spread by rows, as long as there are such.
void plan_by_bytes(bool sends_all, std::int64_t limit, std::vector<PlannedTable>& tables);

/// That the worker with the most has of all tables.
std::int64_t most_bytes(const std::vector<PlannedTable>& tables);

}  // namespace braid::worker
