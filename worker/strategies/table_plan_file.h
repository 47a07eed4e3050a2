// Plans of tables in a form that outlives the process: what the leader tells the other workers, and keeps as
// tables.plan beside the checkpoints, as streams.plan is kept. Thread rule: plain records and pure functions.
//
//   braid table plan 1
//   made for <16 hexadecimal digits>
//   card <name>
//   source <text>
//   costs <numbers of StepCosts, in their order>
//   table <PLAN> <owner> <ALL|DISTINCT> <ids of a step> <bags of a step> <name>   a line for each
//   hot <rows>            behind the line of a table that has hot rows, rising
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/strategies/planned_table.h"
#include "worker/strategies/table_costs.h"

namespace braid::proto {
class Strategy;
}

namespace braid::worker {

/// Equal where plans may be used again: tables, what is looked up of them, workers, the job's word, the card,
/// and this planner.
std::uint64_t table_plan_key(const proto::Strategy& strategy, bool on_device, const std::string& card,
                             const std::vector<PlannedTable>& tables);

std::string table_plan_text(std::uint64_t made_for, const StepCosts& costs,
                            const std::vector<PlannedTable>& tables);

struct TablePlanFile {
  std::uint64_t made_for = 0;
  StepCosts costs;
};
/// Gives the tables what the text has of each. Throws: InvalidArgument with `source` and line for a text that
/// is none, and where it is not of these tables, or a table cannot have its plan.
TablePlanFile take_table_plan(std::string_view text, const std::string& source,
                              std::vector<PlannedTable>& tables);

}  // namespace braid::worker
