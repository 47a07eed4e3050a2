// What a HYBRID step is predicted to take, in parts: tables by table_loads.h, everything else by the flops
// and bytes that the engine's cost model counts for each node of the compiled step, at the rates of
// StepCosts. Thread rule: pure functions.
#pragma once

#include <string>

#include "worker/strategies/hybrid_plan.h"

namespace braid {
class Program;
}

namespace braid::worker {

struct StepPrediction {
  TablesPrediction tables;
  double dense_us = 0;        // nodes beside tables' and exchanges, one behind another
  double all_reduce_us = 0;   // of dense gradients, a bucket behind another
  double variable_bytes = 0;  // of everything but tables and their slots, on a worker
  /// Nothing is hidden behind anything.
  double total() const { return tables.step.total() + dense_us + all_reduce_us; }
};

/// `step`: of one worker, with this strategy's nodes.
StepPrediction predict_step(const StepCosts& costs, int world, const TablesPrediction& tables,
                            const Program& step);

/// For people: the step and its parts, memory, what limits, where the costs come from.
std::string prediction_text(const StepCosts& costs, const StepPrediction& prediction);
/// The same, and the tables, as a JSON object.
std::string prediction_json(const StepCosts& costs, const std::vector<PlannedTable>& tables,
                            const StepPrediction& prediction);

}  // namespace braid::worker
