// The nodes of a HYBRID step for tables that live whole on one rank, their owner, and whose distinct rows
// travel (distinct_ops.h): each id of a rank's batch once. For all of them together, in the step before:
//
//   ids of the next batch -> DistinctRows -> ToOwners -> KeepValues          (ids_ahead.h)
//
// in forward:
//
//   lists, places -> RowsFromOwners -> rows, as a gather gives them
//
// and in backward:
//
//   gradients of rows -> SumRuns -> SumsToOwners -> SparseApplyOptimizer (at the owner)
//
// A gradient is summed for each id on the rank that read it, in the order of positions, and then over ranks
// in their order, as with the lists of hybrid_rewrite.h. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/piece_exchange.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/ids_ahead.h"
#include "worker/strategies/owner_rewrite.h"
#include "worker/strategies/table_shard.h"

namespace braid::worker {

class DistinctRewrite {
 public:
  using Table = OwnerRewrite::Table;  // that is the other way that it can go

  /// All outlive it. `fill`: what is exchanged holds numbers everywhere, also where nobody looks.
  DistinctRewrite(TrainingGraph& training, AddCollective add_collective, bool fill)
      : training_(training),
        graph_(training.graph),
        add_collective_(std::move(add_collective)),
        fill_(fill) {}

  /// Whether a table can go this way: whole on one rank, read by one gather, whose ids are those of its
  /// gradient.
  static bool is_possible(const Graph& graph, const TableShard& shard, const VariableGradient& gradient);
  /// How many tables an exchange can hold.
  static constexpr std::int64_t most_tables(int world) { return comm::kMostRowMoves / world; }

  /// The exchange of rows in the place of the gathers. False, and nothing is added: their ids do not follow
  /// from columns alone, or have no size that is known.
  bool look_up(const std::vector<Table>& tables);
  /// The exchange of the next step's lists. REQUIRES: look_up().
  void exchange_next_ids();
  /// The gradients of rows at their owners, in the order of look_up(). They travel in exchanges with room for
  /// about so many bytes to or from a rank: tables are updated while the next ones' gradients are summed and
  /// travel.
  std::vector<VariableGradient> exchange_gradients(std::int64_t bytes);

 private:
  struct Entry {
    const TableShard* table;
    VariableGradient gradient;
    NodeId gather;
    double gradient_bytes;
    std::size_t list;      // its number among the lists of ids
    ValueRef wanted = {};  // the lists of all ranks, at the owner
  };

  void list_ids(const std::vector<Table>& tables);
  bool find_lists();
  NodeId exchange(const char* op, const char* name, std::span<const Entry> entries,
                  std::vector<ValueRef> inputs);
  /// The sums of entries that lie beside each other, at their owners.
  NodeId exchange_sums(std::span<const Entry> entries);

  TrainingGraph& training_;
  Graph& graph_;
  const AddCollective add_collective_;
  const bool fill_;
  std::vector<Entry> entries_;      // those of one width beside each other, in the order of their lists
  std::vector<std::size_t> order_;  // of each of the tables that were given, its entry
  std::vector<ValueRef> ids_;       // of each list
  std::vector<std::int64_t> rows_;  // of the table of each list
  std::vector<std::int64_t> sizes_;
  std::vector<ValueRef> lists_, places_;  // of this rank
  ValueRef runs_ = {};
  std::optional<IdsAhead> ahead_;
};

}  // namespace braid::worker
