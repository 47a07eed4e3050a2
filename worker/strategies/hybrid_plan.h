// Decides how the tables of a HYBRID job lie on the ranks: a pure function of the job, the model's tables,
// the number of ranks and what parts of a step cost (table_costs.h). The user's word for a table decides; the
// rest is chosen by table_planner.h. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "worker/strategies/planned_table.h"
#include "worker/strategies/table_costs.h"
#include "worker/strategies/table_loads.h"

namespace braid::proto {
class Strategy;
}

namespace braid::worker {

/// Whether ids travel as the batch has them, of tables that can. `on_device`: ranks exchange from GPU to GPU.
bool sends_all_ids(const proto::Strategy& strategy, bool on_device);

/// Throws: InvalidArgument for a pattern that is none, one that no table fits, a plan or a way of sending ids
/// that a table cannot have (with what would do), and a memory limit that no plan keeps, with the numbers.
void plan_tables(const proto::Strategy& strategy, bool on_device, const StepCosts& costs,
                 std::vector<PlannedTable>& tables);

/// Sets by_user alone, of tables whose plans were decided elsewhere. Throws: as plan_tables().
void mark_users_word(const proto::Strategy& strategy, std::vector<PlannedTable>& tables);

/// What the model says of decided plans.
struct TablesPrediction {
  TableStep step;
  double most_memory_bytes = 0, mean_memory_bytes = 0, received_bytes = 0;  // of a worker
  double dense_sums_bytes = 0;                   // of tables that ride in the buckets of dense gradients
  double balance = 1;                            // the busiest worker's time of the mean
  double by_bytes_us = 0, by_bytes_balance = 1;  // of the plan by bytes alone (table_rule.h)
};
TablesPrediction predict_tables(const proto::Strategy& strategy, bool on_device, const StepCosts& costs,
                                const std::vector<PlannedTable>& tables);

/// A line a table: its plan and where it is; of the worker that has the most of it memory, bytes received and
/// predicted time.
std::string plan_text(const StepCosts& costs, const std::vector<PlannedTable>& tables);

}  // namespace braid::worker
