// The tables of a HYBRID job's training graph, as plans need to know them. Thread rule: one thread.
#pragma once

#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/planned_table.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

/// Of these gradients, in their order; all are of rows. What is looked up of them follows from
/// TrainingGraph::feeds.
std::vector<PlannedTable> list_tables(const TrainingGraph& training,
                                      const std::vector<VariableGradient>& gradients,
                                      const Optimizers& optimizers, const Peers& peers);

/// Whether an owner may pool: one column reads the table, whose bags have one length. Ids go there then, and
/// sums come back.
bool pools_at_owner(const Graph& graph, const VariableInfo& table);

}  // namespace braid::worker
