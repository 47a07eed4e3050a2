// What a table costs the workers in a step under a plan: a pure model, from bytes and StepCosts. A step with
// sharded tables goes through parts between which all workers meet; so it takes, part by part, what the
// worker with the most of it takes. Distinct ids are those of Zipf's law with exponent 1 (Adamic, Huberman
// 2002). Thread rule: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "worker/strategies/planned_table.h"
#include "worker/strategies/table_costs.h"

namespace braid::worker {

enum class LoadPart {
  IdsIn,
  IdsOut,  // bytes; so are the other In and Out
  Lookup,  // us, as what follows
  RowsIn,
  RowsOut,
  Own,  // what a worker does with the rows that came, and with its gradients before they go
  GradientsIn,
  GradientsOut,
  Update,
  Lists,  // of ids, made on the host
  Count
};

/// Of one worker.
struct Load {
  std::array<double, static_cast<std::size_t>(LoadPart::Count)> of{};
  double memory_bytes = 0;

  double& operator[](LoadPart part) { return of[static_cast<std::size_t>(part)]; }
  double operator[](LoadPart part) const { return of[static_cast<std::size_t>(part)]; }
  Load& add(const Load& other, double times = 1);
  /// The larger of both, in each part.
  Load& raise_to(const Load& other);
  double received_bytes() const;
};

struct TableLoad {
  Load everyone;
  Load owner;  // of plan TABLE, in the place of everyone's; else the same
};

/// Of this table under this plan, on whichever worker. `all_ids` as TableShard has it.
TableLoad load_of(const StepCosts& costs, const PlannedTable& table, TablePlan plan, bool all_ids);

/// A step's tables, in us: parts of which each waits for the slowest worker.
struct TableStep {
  double ids = 0, lookup = 0, rows = 0, own = 0, gradients = 0, update = 0, lists = 0;
  double total() const { return ids + lookup + rows + own + gradients + update + lists; }
};
/// `peak`: of each part what the worker with the most has.
TableStep step_of(const StepCosts& costs, int world, const Load& peak);

/// How many of `rows` rows `ids` ids name, by the law above; both at least 1.
double distinct_rows(double ids, double rows);

/// The loads of all workers under a plan. Thread rule: one thread.
class WorkerLoads {
 public:
  explicit WorkerLoads(int world) : beside_(static_cast<std::size_t>(world)) {}

  /// `times` -1 takes it away again. `owner`: of plan TABLE; else negative.
  void add(const TableLoad& load, int owner, double times = 1);
  Load of(int rank) const;
  /// Of each part the most that a worker has.
  Load peak() const;
  /// The same if this were added.
  Load peak_with(const TableLoad& load, int owner) const;
  double mean_bytes() const;
  int world() const { return static_cast<int>(beside_.size()); }
  /// What the worker has beside what all have.
  const Load& beside(int rank) const { return beside_[static_cast<std::size_t>(rank)]; }

 private:
  void find_most();

  Load all_;                  // have
  std::vector<Load> beside_;  // by worker
  Load most_;                 // of beside_, in each part
};

/// One number for a worker's load, to tell the busiest: us, exchanges by their rates.
double busy_us(const StepCosts& costs, int world, const Load& load);

/// Of tables whose plans are decided.
WorkerLoads loads_of(const StepCosts& costs, std::span<const PlannedTable> tables);

}  // namespace braid::worker
