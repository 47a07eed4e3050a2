// The nodes of a HYBRID step for tables that live whole on one rank and whose ids travel as the batch has
// them (owner_ops.h). For all of them together, in forward:
//
//   ids -> ToOwners -> ResourceGather (at the owner) -> FromOwners -> rows, as a gather gives them
//
// and in backward:
//
//   gradients of rows -> ToOwners -> SparseApplyOptimizer (at the owner)
//
// Of bags (braid.Bag) sums travel, not rows: the owner pools, and gets the gradients of the sums.
//
// The graphs of all ranks have the same nodes; those of tables of other ranks have tensors of no rows. The
// owner sums the gradients of an id in the order of ranks, and of positions within each, as one process would
// that had the whole batch. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/table_shard.h"

namespace braid::worker {

class OwnerRewrite {
 public:
  /// All outlive it.
  OwnerRewrite(TrainingGraph& training, AddCollective add_collective)
      : training_(training), graph_(training.graph), add_collective_(std::move(add_collective)) {}

  /// The exchange of ids and rows in the place of the gathers. REQUIRES: TableShard::all_ids of each.
  void look_up(const std::vector<const TableShard*>& tables, const std::vector<VariableGradient>& gradients);
  /// The gradients of rows at their owners, in the order of look_up().
  std::vector<VariableGradient> exchange_gradients();

  /// Where the number of a table's ids in a step can be read: elements of these outputs, divided by its
  /// columns.
  struct Rows {
    std::string node;
    std::vector<int> outputs;
  };
  const std::vector<Rows>& rows() const { return rows_; }

 private:
  struct Entry {
    const TableShard* table;
    VariableGradient gradient;
    std::vector<NodeId> gathers;  // or one bag
    bool is_bag = false;
    ValueRef named = {};    // the ids of the gradient's rows, at the owner
    ValueRef weights = {};  // of a bag's ids, at the owner, where it has such
  };

  void exchange_ids();
  void exchange_rows();
  ValueRef sum_gradients(const Entry& entry) const;
  ValueRef rows_of_sums(const Entry& entry, ValueRef sums);
  NodeId exchange(const char* op, const char* name, std::vector<ValueRef> inputs,
                  std::vector<std::int64_t> owners);

  TrainingGraph& training_;
  Graph& graph_;
  const AddCollective add_collective_;
  std::vector<Entry> entries_;
  std::vector<ValueRef> wanted_;  // of each gather, in the order of entries: its ids at the owner
  std::vector<Rows> rows_;
};

}  // namespace braid::worker
