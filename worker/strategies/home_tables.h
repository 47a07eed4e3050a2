// Sparse tables on servers whose rows have their home with the job's only worker. In the place of a table of
// all rows the step has a variable with room for some, "ps_home/<table>", whose rows the batch's ids are
// turned into; lookups, gradients and updates are those of one process:
//
//   ids -> PsKeys (in the stage) -> PsHomeRows -> PsHomeSwap -> rows of the ids -> gathers, updates
//                                                       └────── PsHomeLeave
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
  };
  /// By gather, how many ids it has in a step.
  using Ids = std::map<NodeId, std::int64_t>;
  /// `runtime` outlives it. `servers`: null where the step is only looked at.
  HomeTables(Runtime& runtime, std::shared_ptr<ps::PsClient> servers, const Options& options, Ids ids)
      : runtime_(runtime), servers_(std::move(servers)), options_(options), ids_(std::move(ids)) {}

  /// The ids of all sparse tables' gathers, where their rows can have their home here: gathers alone read
  /// them, by ids of which none is no id, and whose number is known. Nothing where one cannot, or there are
  /// none.
  static std::optional<Ids> can_take(const TrainingGraph& training);

  /// REQUIRES: its gathers are among the ids. `number`: of the table in the table set.
  void add(const VariableGradient& gradient, int number, const OptimizerSpec& optimizer);
  /// Puts the variables in the places of all that were added, with their updates. Result: the servers' votes.
  /// Throws: InvalidArgument where a batch may name more rows than have room.
  ValueRef finish(TrainingGraph& training);

  /// The servers have all rows as they are before `step`. REQUIRES: no step is running.
  void flush(std::uint64_t step, const WaitContext& wait);
  /// No row is here.
  void clear();

 private:
  struct Table {
    VariableGradient gradient;
    int number;
    OptimizerSpec optimizer;
    std::vector<NodeId> gathers;              // in the order of the gradient's rows
    std::vector<std::string> variables = {};  // values and slots
  };
  struct Group {
    std::vector<std::int64_t> widths;  // numbers of a row's values, of each slot
    std::vector<Table> tables;
    NodeId keys = kNoNode, swap = kNoNode;
  };

  std::vector<std::int64_t> ids_of(const Group& group) const;
  void add_variables(TrainingGraph& training, Group& group, ValueRef ready, std::int64_t number);
  void put_in_place(TrainingGraph& training, Group& group, Table& table, std::int64_t rows, int first_list);
  void make_service(const std::vector<std::vector<std::int64_t>>& shares);

  Runtime& runtime_;
  const std::shared_ptr<ps::PsClient> servers_;
  const Options options_;
  const Ids ids_;
  std::vector<Group> groups_;
  std::shared_ptr<HomedRows> homed_;  // null: the step is only looked at
};

}  // namespace braid::worker
