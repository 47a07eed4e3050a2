// Decides how the tables of a HYBRID job lie on the ranks, the same on all of them: a pure function of the
// job, the model's tables and the number of ranks. Thread rule: pure functions.
//
// The user's word for a table decides. Between hosts, small ones of the others are replicated: their lists
// are short, and forward needs no exchange for them; the rest are spread by rows, which balances both memory
// and traffic. Between GPUs the others live whole on one rank each: a captured step has messages of fixed
// sizes, and only what such a table is asked for and gives is known without looking at the ids. With
// strategy.hybrid.memory_bytes the largest of the job's own choices are spread by rows until the plan keeps
// it. Tables that live whole on one rank go, those with the most traffic (else the largest) first, to the
// rank that has the least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/strategies/table_shard.h"

namespace braid::proto {
class Strategy;
}

namespace braid::worker {

/// What is replicated unless the job says otherwise: bytes of a table with its slots.
inline constexpr std::int64_t kReplicateBytes = 256 << 10;

struct PlannedTable {
  TableShard shard;            // name, rows, dim, slots, rank, world are given; plan and owner are decided
  bool can_be_sharded = true;  // false: something beside gathers reads it
  bool by_user = false;        // the plan is the job's word
  bool can_send_all = true;    // false: how many ids ranks have differs, or is not known
  std::int64_t ids_per_example = 1;
};

/// `on_device`: ranks exchange from GPU to GPU. Throws: InvalidArgument for a pattern that is none, one that
/// no table fits, a plan or a way of sending ids that a table cannot have (with what would do), and a memory
/// limit that no plan keeps, with the numbers.
void plan_tables(const proto::Strategy& strategy, bool on_device, std::vector<PlannedTable>& tables);

/// A line a table and one of sums: plan, bytes on a rank, bytes that a rank receives in a step when all of
/// `ids` ids of a table are different. `ids`: by table; 0: not known.
std::string plan_text(const std::vector<PlannedTable>& tables, const std::vector<std::int64_t>& ids);

}  // namespace braid::worker
