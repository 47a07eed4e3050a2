// Hot rows of a HYBRID job: of a table with plan ROW those that batches name most, which every rank has
// beside its part, in the variable "<table>/hot" with slots of its own. Their ids travel to nobody, and their
// rows from nobody; their gradients go to all ranks, in lists or as a dense sum, and are added up in the
// order of ranks, as the holder of any row does: so the bits are those of a table without hot rows.
//
//   ids -> SplitHotIds -> cold ids, as all ids of the table (hybrid_rewrite.h); hot ids
//   rows of the cold ids, hot rows -> HotRows -> rows, as a gather gives them
//
// The table's own copies of hot rows rest: what reads or writes the table outside of steps takes the hot ones
// (table_service.h, table_files.h). Thread rule: values and pure functions; the rewrite: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/planned_table.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

/// Of a table, or a slot of it.
std::string hot_variable(const TableShard& table, const std::string& variable);

/// Gives each table whose plan may have hot rows as many, those that the first batches name most; fewer where
/// they name fewer, and of equal ones the smaller ids. Without batches, as where a step is only looked at,
/// the first rows. Throws: what making a batch throws.
void choose_hot_rows(const Graph& graph, const BatchValues& values, std::vector<PlannedTable>& tables);

/// The hot rows as a table that is on all ranks.
TableShard hot_table(const TableShard& table);

/// Puts the hot rows behind the table's gathers, and gives their gradient; that of the table has -1 in the
/// places of hot ids. REQUIRES: gathers alone read the table, whose gradient it is.
VariableGradient split_hot_rows(TrainingGraph& training, const TableShard& table, VariableGradient& gradient);

}  // namespace braid::worker
