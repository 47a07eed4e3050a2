// The nodes of a HYBRID step for tables whose ids travel as the batch has them (owner_ops.h): they live whole
// on one rank, or each rank has some columns of all rows and owns these. For all of them together, in
// forward:
//
//   ids -> ToOwners -> ResourceGather (at the owner) -> FromOwners -> rows, as a gather gives them
//
// and in backward:
//
//   gradients of rows -> ToOwners -> SparseApplyOptimizer (at the owner)
//
// Of bags (braid.Bag) sums travel, not rows: the owner pools, and gets the gradients of the sums. Of tables
// by columns all ranks are owners, each of its part: what comes from them is joined (ConcatV2), gradients are
// taken apart (Split).
//
// The graphs of all ranks have the same nodes; those of tables of other ranks have tensors of no rows. The
// owner sums the gradients of an id in the order of ranks, and of positions within each, as one process would
// that had the whole batch. Thread rule: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/ids_ahead.h"
#include "worker/strategies/table_shard.h"

namespace braid::worker {

class OwnerRewrite {
 public:
  /// All outlive it. `ahead`: ids travel a step ahead (ids_ahead.h) where they can.
  OwnerRewrite(TrainingGraph& training, AddCollective add_collective, bool ahead)
      : training_(training),
        graph_(training.graph),
        add_collective_(std::move(add_collective)),
        wants_ahead_(ahead) {}

  struct Table {
    const TableShard* shard;  // with all_ids
    VariableGradient gradient;
    double gradient_bytes;  // of a rank in a step, about
    double ids;             // of a rank in a step
  };

  /// The exchange of ids and rows in the place of the gathers. Rows travel in exchanges of about so many
  /// bytes to or from a rank, those of few lookups first, so that the next ones are looked up, and those that
  /// came are taken, while others travel.
  void look_up(const std::vector<Table>& tables, std::int64_t bytes);
  /// The exchange of the next step's ids, where they travel ahead. REQUIRES: look_up().
  void exchange_next_ids();
  /// The gradients of rows at their owners, in the order of look_up(). They travel in exchanges of about so
  /// many bytes to or from a rank, those of many lookups first, so that tables are updated while others'
  /// gradients travel.
  std::vector<VariableGradient> exchange_gradients(std::int64_t bytes);
  /// Those of single rows where they are made, in the order of look_up().
  std::vector<VariableGradient> gradients() const;
  /// Of gradients, to or from a rank.
  double travelling_bytes() const;

 private:
  struct Entry {
    const TableShard* table;
    VariableGradient gradient;
    double gradient_bytes;
    double ids;
    std::vector<NodeId> gathers;  // or one bag
    bool is_bag = false;
    // Places in what was received, of the first part; the others' follow.
    std::vector<std::size_t> wanted = {};     // of each gather's ids
    std::optional<std::size_t> weights = {};  // of a bag's ids where it has such
    ValueRef named = {};                      // the ids of the gradient's rows, at this rank
  };

  void exchange_ids();
  std::vector<ValueRef> received_ids(std::vector<ValueRef> values, std::vector<std::int64_t> owners);
  void exchange_rows(const std::vector<std::size_t>& entries, std::int64_t piece);
  ValueRef add_gather(const Entry& entry, std::size_t gather, int part);
  ValueRef joined(const Entry& entry, ValueRef first);
  void take_apart(const Entry& entry, ValueRef gradients, std::vector<ValueRef>& parts);
  ValueRef last_axis();
  ValueRef sum_gradients(const Entry& entry) const;
  ValueRef rows_of_sums(const Entry& entry, ValueRef sums);
  std::vector<std::size_t> by_ids() const;
  /// Of entries in this order. Every owner has a like part of its tables in each.
  std::vector<std::vector<std::size_t>> pieces(const std::vector<std::size_t>& order,
                                               std::int64_t bytes) const;
  void exchange_piece(const std::vector<std::size_t>& entries, std::vector<VariableGradient>& gradients);
  NodeId exchange(const char* op, const char* name, std::vector<ValueRef> inputs,
                  std::vector<std::int64_t> owners, AttrMap attrs = {});

  TrainingGraph& training_;
  Graph& graph_;
  const AddCollective add_collective_;
  const bool wants_ahead_;
  std::vector<Entry> entries_;
  std::vector<ValueRef> received_;
  std::optional<IdsAhead> ahead_;  // absent: ids travel in their own step
  ValueRef last_axis_ = {};
};

}  // namespace braid::worker
