// A table of a HYBRID job as plans see it: what is known of it, and what was decided. Thread rule: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/strategies/table_shard.h"

namespace braid::worker {

struct PlannedTable {
  TableShard shard;            // name, rows, dim, slots, rank, world are given; plan and owner are decided
  bool can_be_sharded = true;  // false: something beside gathers reads it
  bool by_user = false;        // the plan is the job's word
  bool can_send_all = true;    // false: how many ids ranks have differs, or is not known
  std::int64_t ids_per_example = 1;
  std::int64_t ids = 0;   // that a worker looks up in a step; 0: not known
  int number_bytes = 4;   // of a number that layers read, and of its gradient, where whole tables' travel
  std::int64_t bags = 0;  // of a worker in a step, whose sums travel where the owner pools; 0: rows travel

  std::int64_t ids_of_step() const { return std::max<std::int64_t>({ids, ids_per_example, 1}); }
  /// Whether the gradients of hot rows travel as a sum of all of them, not as lists of those that each worker
  /// has read: as much as two lists, which pays beside several where most are read. Devices sum in an order
  /// of their own.
  bool sums_hot_densely(bool on_device) const {
    return !on_device && shard.world > 2 && shard.most_hot() <= ids_of_step();
  }
  bool can_have_columns() const { return !shard.row_wise && shard.dim > 0 && shard.dim % shard.world == 0; }
};

}  // namespace braid::worker
