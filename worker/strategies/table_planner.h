// Chooses the plans of all tables of a HYBRID job together, so that the step that table_loads.h predicts is
// the shortest within a worker's memory: a search that puts the costliest tables first, and improves what it
// has table by table until no change of one is better. It also starts from the plan by bytes (table_rule.h),
// so it is never worse than that. The same whatever order the tables come in. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/strategies/planned_table.h"
#include "worker/strategies/table_costs.h"

namespace braid::worker {

struct PlannerLimits {
  bool sends_all = false;         // ids travel as the batch has them, of tables that can
  std::int64_t memory_bytes = 0;  // that tables and slots may take on a worker; 0: no limit
  bool is_soft = false;           // what does not keep it is planned with as little as possible
};

/// Decides plan, owner and all_ids of tables with plan AUTO, the owner of those with plan TABLE.
/// Throws: InvalidArgument where no plan that it finds keeps the limit, with the largest table of the fullest
/// worker, and the numbers. REQUIRES: names are unique; all have one world.
void choose_plans(const StepCosts& costs, const PlannerLimits& limits, std::vector<PlannedTable>& tables);

}  // namespace braid::worker
