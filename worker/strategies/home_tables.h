// Sparse tables on servers whose rows have their home with the job's workers. In the place of a table of all
// rows a worker has a variable with room for some, "ps_home/<table>", whose rows ids are turned into. The
// job's only worker is the home of all rows; lookups, gradients and updates are those of one process:
//
//   ids -> PsKeys (in the stage) -> PsHomeRows -> PsHomeArrive
//       -> PsHomeSwap -> rows of ids -> gathers, updates
//               └────── PsHomeLeave
//
// Several workers are each the home of the rows of their part, as under HYBRID with plan ROW, whose exchanges
// of rows and gradients they have (hybrid_rewrite.h). The ids of all workers come before the step runs:
//
//   ids -> BucketIds (in the stage) -> HomeKeys -> PsHomeRows -> ... -> rows of all workers' ids
//
// Nothing of a step waits for the servers but for rows that are not here, which come while the step before
// runs (homed_rows.h). Thread rule: as Strategy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/wait_context.h"
#include "engine/exec/runtime.h"
#include "ps/client/ps_client.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/hybrid_rewrite.h"

namespace braid::worker {

class HomedRows;

/// Whether it is one of these variables or a slot of one, which belong to no checkpoint of this process.
bool is_home_variable(std::string_view name);

/// Where RemoteTables::fill() has left what servers have, and workers had the rest. Throws: Unavailable.
[[noreturn]] void refuse_rows_alone();

class HomeTables {
 public:
  struct Options {
    int servers = 1;
    std::int64_t rows = 0;   // that have room, of all tables of one width
    std::int64_t steps = 2;  // in flight
    int rank = 0, world = 1;
  };
  /// By variable, how many ids a step has of it on one worker, at most.
  using Ids = std::map<std::string, std::int64_t>;
  /// `runtime` outlives it. `servers`: null where the step is only looked at.
  HomeTables(Runtime& runtime, std::shared_ptr<ps::PsClient> servers, const Options& options, Ids ids)
      : runtime_(runtime), servers_(std::move(servers)), options_(options), ids_(std::move(ids)) {}

  /// The ids of all sparse tables, where their rows can have their home with `world` workers: gathers alone
  /// read them, by ids whose number is known, and of which, for one worker, none is no id. Nothing where one
  /// cannot, or there are none.
  static std::optional<Ids> can_take(const TrainingGraph& training, int world);

  /// REQUIRES: it is among the ids. `number`: of the table in the table set.
  void add(const VariableGradient& gradient, int number, const OptimizerSpec& optimizer);
  /// The servers' votes. REQUIRES: finish(), or find_rows().
  ValueRef votes() const { return votes_; }

  // Of the only worker.
  /// Puts the variables in the places of all that were added, with their updates. Throws: InvalidArgument
  /// where a batch may name more rows than have room.
  void finish(TrainingGraph& training);

  // Of one of several.
  /// Of all that were added, in that order, where the ids' rows are; `lists`: of this worker's ids.
  /// `counted`: exchanges look at how many there are. Throws: as finish().
  std::vector<OwnRows> find_rows(TrainingGraph& training, const std::vector<ValueRef>& lists, bool counted);
  /// The update of one of these, of all workers' gradients.
  void update(TrainingGraph& training, const VariableGradient& gradient);

  /// The servers have all rows as they are before `step`. REQUIRES: no step is running.
  void flush(std::uint64_t step, const WaitContext& wait);
  /// No row is here.
  void clear();

 private:
  struct Table {
    VariableGradient gradient;
    int number;
    OptimizerSpec optimizer;
    std::size_t added;                        // before it
    std::vector<NodeId> gathers = {};         // of the only worker: in the order of the gradient's rows
    std::int64_t rows = 0;                    // that have room
    std::vector<std::string> variables = {};  // values and slots
  };
  struct Group {
    std::vector<std::int64_t> widths;  // numbers of a row's values, of each slot
    std::vector<Table> tables;
    ValueRef keys = {}, counts = {};
    std::vector<ValueRef> places = {};  // of the ids of each list; of several workers, of all in one
    NodeId swap = kNoNode;
  };

  bool alone() const { return options_.world == 1; }
  /// Of one of several workers: how many ids may come of a list, from each of them.
  std::int64_t capacity_of(const Table& table) const;
  std::int64_t held_of(const Table& table) const;
  std::vector<std::int64_t> ids_of(const Group& group) const;
  void share_room();
  NodeId add_home_keys(TrainingGraph& training, const std::vector<ValueRef>& lists);
  void add_swaps(TrainingGraph& training);
  VariableInfo add_variable(TrainingGraph& training, const Table& table) const;
  void put_in_place(TrainingGraph& training, Group& group, Table& table, int first_list);
  void add_to_swap(TrainingGraph& training, Group& group, Table& table);
  void make_service();

  Runtime& runtime_;
  const std::shared_ptr<ps::PsClient> servers_;
  const Options options_;
  const Ids ids_;
  std::vector<Group> groups_;
  std::size_t added_ = 0;
  ValueRef votes_ = {};
  std::shared_ptr<HomedRows> homed_;  // null: the step is only looked at
};

}  // namespace braid::worker
