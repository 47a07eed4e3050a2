// Gradients of replicated tables of a HYBRID job whose ids are not exchanged: each rank's rows in their dense
// form ride in the buckets of dense gradients, and so does how often each row was read. What comes back is
// rows again, those that some rank read, so that updates happen to no others, whatever the optimizer.
//
//   indices, rows -> SlicesToDense -> AllReduce -> rows of the whole table
//   indices -> 1s -> SlicesToDense -> AllReduce -> row, or -1 where nobody read it
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

class ReplicatedRows {
 public:
  /// It outlives this.
  explicit ReplicatedRows(TrainingGraph& training) : training_(training), graph_(training.graph) {}

  /// The dense gradients of a table's rows and their counts, which have to be summed.
  std::vector<VariableGradient> dense_of(const VariableGradient& rows);
  /// Puts rows in the place of the sums of what dense_of() gave.
  void take_sums(std::vector<VariableGradient>& reduced);

 private:
  ValueRef ones(ValueRef indices, const std::string& name);
  ValueRef rows_that_were_read(const VariableGradient& table, ValueRef counts);

  TrainingGraph& training_;
  Graph& graph_;
  std::vector<VariableGradient> tables_;
};

}  // namespace braid::worker
