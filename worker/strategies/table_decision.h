// How the workers of a HYBRID job come to one plan of its tables: the leader goes on with the one that it has
// kept beside the checkpoints, where the job is resumed and the plan is for it; else the workers measure
// their links, and the leader plans. It tells the others, also why it cannot. Thread rule: one thread.
#pragma once

#include <functional>
#include <vector>

#include "base/wait_context.h"
#include "worker/strategies/hybrid_plan.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct TableDecision {
  const proto::Job& job;
  const Peers& peers;
  bool on_device = false;
  bool resume = false;
  StepCosts costs;   // before measuring
  WaitContext wait;  // for the leader's word
  /// Chooses hot rows where plans may have some (hot_rows.h); called on the leader.
  std::function<void(std::vector<PlannedTable>&)> choose_hot_rows = {};
};

/// Decides the plans of the tables, alike on all workers; gives the costs that they were made with.
/// Throws: as plan_tables(), on all workers; what the communicator throws.
StepCosts decide_tables(const TableDecision& decision, std::vector<PlannedTable>& tables);

}  // namespace braid::worker
