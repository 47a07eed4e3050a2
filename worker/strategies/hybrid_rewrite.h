// The nodes of a HYBRID step. For each sharded table, in forward:
//
//   ids -> BucketIds -> AllToAll -> ResourceGatherOrZero -> AllToAll -> Unbucket -> rows, as a gather gives
//   them
//
// and in backward, for every table:
//
//   gradients of rows -> SumBuckets -> AllToAll -> SparseApplyOptimizer of this rank's part
//
// Lists of ids, rows and gradients of all tables travel in one exchange each. A gradient is summed for each
// id on the rank that read it, in the order of positions, and then over ranks in their order, whatever the
// plan: so all plans give the same bits. Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/table_shard.h"

namespace braid::worker {

/// Adds a node of that collective op behind the one before it, for one total order.
using AddCollective = std::function<NodeId(Node, const char*)>;

/// Where this rank has its rows of a table, if that is not the variable of its part.
struct OwnRows {
  VariableInfo variable;
  ValueRef rows;      // [ranks, C]: of each id that ranks have sent, the row of `variable`; -1 behind them
  ValueRef received;  // [ranks, C] i64, which has as many ids; invalid: nobody counts them
};
/// Of each table, of the lists of this rank's ids (braid.BucketIds).
using FindOwnRows = std::function<std::vector<OwnRows>(const std::vector<ValueRef>& lists)>;

class HybridRewrite {
 public:
  /// All outlive it. `fill`: what is exchanged holds numbers everywhere, also where nobody looks.
  HybridRewrite(TrainingGraph& training, AddCollective add_collective, bool fill)
      : training_(training),
        graph_(training.graph),
        add_collective_(std::move(add_collective)),
        fill_(fill) {}

  /// Puts the exchange of rows before the model's first layers. `gradients` of these tables are rows.
  /// Throws: InvalidArgument where workers have parts of different sizes and a table's ids are not those of
  /// its gradient. With `find_own` it exchanges the lists of ids, too; REQUIRES then: tables are sharded, and
  /// their ids those of their gradients.
  void look_up(const std::vector<const TableShard*>& tables, const std::vector<VariableGradient>& gradients,
               const FindOwnRows& find_own = {});
  /// The gradients of what this rank holds, in the order of look_up(): rows of parts of tables, -1 where
  /// there is none.
  std::vector<VariableGradient> exchange_gradients();

 private:
  struct Entry {
    const TableShard* table;
    VariableGradient gradient;
    std::vector<NodeId> gathers;  // of this table
    NodeId buckets = kNoNode;     // for rows, and for gradients where they are of the same ids
    NodeId gradient_buckets = kNoNode;
    ValueRef wanted = {}, gradient_wanted = {};      // lists of this rank's rows, from all ranks
    ValueRef received = {}, gradient_received = {};  // that have as many; invalid: nobody counts them
    std::optional<VariableInfo> own = {};            // where this rank has its rows, if found by others
  };

  void bucket(Entry& entry);
  NodeId add_buckets(const Entry& entry, const std::string& name, std::vector<ValueRef> ids, bool padded);
  void exchange_ids();
  void find_own_rows(const FindOwnRows& find_own);
  void exchange_rows();
  NodeId exchange(const char* name, std::vector<ValueRef> values, const std::vector<ValueRef>& sent,
                  const std::vector<ValueRef>& received);
  void replace_gather(const Entry& entry, std::size_t gather, ValueRef rows);

  TrainingGraph& training_;
  Graph& graph_;
  const AddCollective add_collective_;
  const bool fill_;
  std::vector<Entry> entries_;
};

/// Whether nothing but gathers reads the table.
bool is_read_by_gathers_only(const Graph& graph, const VariableInfo& table);

}  // namespace braid::worker
