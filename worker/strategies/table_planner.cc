#include "worker/strategies/table_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "worker/strategies/table_loads.h"
#include "worker/strategies/table_rule.h"

namespace braid::worker {
namespace {

constexpr int kMostRounds = 20;
constexpr int kShares = 8;             // of the smallest tables, which are replicated in starts
constexpr double kWorthwhile = 1e-6;   // of a step: smaller gains are roundings
constexpr double kShareOfMean = 0.02;  // of all work, beside the step's: what nobody waits for is work, too

/// Less is better.
struct Price {
  double excess_bytes = 0, us = 0;
  bool less_than(const Price& other) const {
    if (excess_bytes != other.excess_bytes) return excess_bytes < other.excess_bytes;
    return us < other.us * (1 - kWorthwhile);
  }
};

struct Candidate {
  TablePlan plan;
  bool all_ids;
  TableLoad load;
  double work_us;  // of all workers' together, a worker's share
  bool has_owner() const { return plan == TablePlan::Table; }
};

struct Choice {
  int candidate = 0;
  int owner = -1;
};
using Choices = std::vector<Choice>;

class Search {
 public:
  Search(const StepCosts& costs, const PlannerLimits& limits, std::vector<PlannedTable*> tables)
      : costs_(costs), limits_(limits), world_(tables.front()->shard.world), tables_(std::move(tables)) {
    for (const PlannedTable* table : tables_) candidates_.push_back(candidates_of(*table));
  }

  /// In the order of tables.
  Choices find() {
    std::optional<Choices> best;
    const auto look_at = [&](const Choices& choices) {
      if (!best || final_price(choices).less_than(final_price(*best))) best = choices;
    };
    const Choices by_bytes = rule();
    for (const Choices& start : {by_bytes, least_memory()}) look_at(improved(start));
    for (int share = 0; share < kShares; ++share)
      look_at(improved(largest_first(tables_.size() * static_cast<std::size_t>(share) / kShares)));
    look_at(by_bytes);
    return *best;
  }

  void apply(const Choices& choices) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const Candidate& candidate = candidate_of(t, choices[t]);
      TableShard& shard = tables_[t]->shard;
      shard.plan = candidate.plan;
      shard.all_ids = candidate.all_ids;
      shard.owner = std::max(choices[t].owner, 0);
    }
  }

 private:
  std::vector<Candidate> candidates_of(const PlannedTable& table) const {
    std::vector<Candidate> all;
    const bool sends_all = limits_.sends_all && table.can_send_all;
    const auto add_one = [&](TablePlan plan, bool all_ids) {
      Candidate candidate{plan, all_ids, load_of(costs_, table, plan, all_ids), 0};
      const double everyone = busy_us(costs_, world_, candidate.load.everyone);
      candidate.work_us = everyone;
      if (plan == TablePlan::Table)
        candidate.work_us += (busy_us(costs_, world_, candidate.load.owner) - everyone) / world_;
      all.push_back(candidate);
    };
    const auto add = [&](TablePlan plan) {
      add_one(plan, sends_all && plan != TablePlan::Row);
      // Lists are shorter than all rows where few of them are read.
      if (sends_all && plan == TablePlan::Replicate && world_ > 1) add_one(plan, false);
    };
    if (table.by_user) {
      add(table.shard.plan);
      return all;
    }
    add(TablePlan::Replicate);
    if (!table.can_be_sharded || world_ == 1) return all;
    add(TablePlan::Table);
    if (table.can_have_columns()) add(TablePlan::Column);
    add(TablePlan::Row);
    return all;
  }

  const Candidate& candidate_of(std::size_t table, const Choice& choice) const {
    return candidates_[table][static_cast<std::size_t>(choice.candidate)];
  }

  Price price(const Load& peak, double work_us) const {
    const auto limit = static_cast<double>(limits_.memory_bytes);
    return {limit > 0 ? std::max(0.0, peak.memory_bytes - limit) : 0,
            step_of(costs_, world_, peak).total() + kShareOfMean * work_us};
  }

  Price final_price(const Choices& choices) const {
    WorkerLoads loads(world_);
    for (std::size_t t = 0; t < tables_.size(); ++t)
      loads.add(candidate_of(t, choices[t]).load, choices[t].owner);
    return price(loads.peak(), 0);
  }

  /// The best of a table beside what `loads` has. `work_us` is that of the others.
  Choice best_of(std::size_t table, const WorkerLoads& loads, double work_us) const {
    std::optional<Price> best;
    Choice choice;
    const auto look_at = [&](int candidate, int owner) {
      const Candidate& its = candidates_[table][static_cast<std::size_t>(candidate)];
      const Price found = price(loads.peak_with(its.load, owner), work_us + its.work_us);
      if (best && !found.less_than(*best)) return;
      best = found;
      choice = {candidate, owner};
    };
    for (int c = 0; c < static_cast<int>(candidates_[table].size()); ++c) {
      if (!candidates_[table][static_cast<std::size_t>(c)].has_owner()) {
        look_at(c, -1);
        continue;
      }
      look_at(c, least(loads, [&](const Load& load) { return owners_us(load); }));
      if (limits_.memory_bytes > 0)
        look_at(c, least(loads, [](const Load& load) { return load.memory_bytes; }));
    }
    return choice;
  }

  /// Of what owners have more of than others; exchanges at the rate of a host's links.
  double owners_us(const Load& load) const {
    using enum LoadPart;
    return load[Lookup] + load[Update] +
           (load[IdsIn] + load[RowsOut] + load[GradientsIn]) / costs_.link_bytes_per_us;
  }

  template <class Amount>
  int least(const WorkerLoads& loads, const Amount& amount) const {
    int found = 0;
    double amount_there = amount(loads.beside(0));
    for (int rank = 1; rank < world_; ++rank)
      if (const double its = amount(loads.beside(rank)); its < amount_there) {
        amount_there = its;
        found = rank;
      }
    return found;
  }

  Choices rule() const {
    std::vector<PlannedTable> copies;
    for (const PlannedTable* table : tables_) copies.push_back(*table);
    for (PlannedTable& table : copies) {
      if (!table.by_user) table.shard.plan = TablePlan::Auto;
      table.shard.all_ids = limits_.sends_all && table.can_send_all && table.shard.plan == TablePlan::Table;
    }
    plan_by_bytes(limits_.sends_all, limits_.memory_bytes, copies);
    Choices choices;
    for (std::size_t t = 0; t < copies.size(); ++t)
      choices.push_back(choice_of(t, copies[t].shard.plan, copies[t].shard.owner));
    return choices;
  }

  Choice choice_of(std::size_t table, TablePlan plan, int owner) const {
    const auto& all = candidates_[table];
    const auto at = std::ranges::find(all, plan, &Candidate::plan);
    return {static_cast<int>(at - all.begin()), plan == TablePlan::Table ? owner : -1};
  }

  /// With the smallest tables replicated: each alone might not pay, as what it saves is not what the busiest
  /// worker has.
  Choices largest_first(std::size_t replicated) const {
    std::vector<double> cheapest;
    for (const auto& all : candidates_)
      cheapest.push_back(std::ranges::min(all, {}, &Candidate::work_us).work_us);
    std::vector<std::size_t> order(tables_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t t) { return cheapest[t]; });
    return in_turn(order, smallest(replicated));
  }

  std::vector<bool> smallest(std::size_t count) const {
    std::vector<std::size_t> order(tables_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [&](std::size_t t) { return tables_[t]->shard.elements(); });
    std::vector<bool> is_small(tables_.size());
    for (std::size_t i = 0; i < count; ++i) is_small[order[i]] = !tables_[order[i]]->by_user;
    return is_small;
  }

  Choices in_turn(const std::vector<std::size_t>& order, const std::vector<bool>& replicated) const {
    Choices choices(tables_.size());
    WorkerLoads loads(world_);
    double work_us = 0;
    for (const std::size_t t : order) {
      choices[t] = replicated[t] ? choice_of(t, TablePlan::Replicate, -1) : best_of(t, loads, work_us);
      loads.add(candidate_of(t, choices[t]).load, choices[t].owner);
      work_us += candidate_of(t, choices[t]).work_us;
    }
    return choices;
  }

  /// Whole tables, the largest first, go to the worker that has the least; the rest has the plan that needs
  /// the least on any worker.
  Choices least_memory() const {
    Choices choices(tables_.size());
    WorkerLoads loads(world_);
    std::vector<std::size_t> order(tables_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](std::size_t t) { return tables_[t]->shard.elements(); });
    for (const std::size_t t : order) {
      const auto& all = candidates_[t];
      const auto at = std::ranges::min_element(
          all, {}, [](const Candidate& candidate) { return candidate.load.owner.memory_bytes; });
      const int owner =
          at->has_owner() ? least(loads, [](const Load& load) { return load.memory_bytes; }) : -1;
      choices[t] = {static_cast<int>(at - all.begin()), owner};
      loads.add(at->load, owner);
    }
    return choices;
  }

  Choices improved(Choices choices) const {
    WorkerLoads loads(world_);
    double work_us = 0;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      loads.add(candidate_of(t, choices[t]).load, choices[t].owner);
      work_us += candidate_of(t, choices[t]).work_us;
    }
    for (int round = 0; round < kMostRounds; ++round) {
      bool changed = false;
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        const Price before = price(loads.peak(), work_us);
        const Choice old = choices[t];
        const Candidate& its = candidate_of(t, old);
        loads.add(its.load, old.owner, -1);
        const double others_us = work_us - its.work_us;
        const Choice found = best_of(t, loads, others_us);
        const Candidate& other = candidate_of(t, found);
        const bool is_better =
            price(loads.peak_with(other.load, found.owner), others_us + other.work_us).less_than(before);
        choices[t] = is_better ? found : old;
        work_us = others_us + candidate_of(t, choices[t]).work_us;
        loads.add(candidate_of(t, choices[t]).load, choices[t].owner);
        changed = changed || is_better;
      }
      if (!changed) break;
    }
    return choices;
  }

  const StepCosts& costs_;
  const PlannerLimits& limits_;
  const int world_;
  const std::vector<PlannedTable*> tables_;
  std::vector<std::vector<Candidate>> candidates_;
};

[[noreturn]] void refuse(std::int64_t limit, std::int64_t most, const std::vector<PlannedTable>& tables) {
  const TableShard* largest = nullptr;
  std::int64_t its_bytes = 0;
  for (const PlannedTable& table : tables) {
    TableShard there = table.shard;
    there.rank = there.owner;
    if (largest && there.local_bytes() <= its_bytes) continue;
    largest = &table.shard;
    its_bytes = there.local_bytes();
  }
  throw InvalidArgument(fmt::format(
      "strategy.hybrid.memory_bytes {}: tables and slots take {} bytes on a worker at least; the largest "
      "part is of table '{}' [{},{}], plan {}: {} bytes",
      limit, most, largest->name, largest->rows, largest->dim, table_plan_name(largest->plan), its_bytes));
}

}  // namespace

void choose_plans(const StepCosts& costs, const PlannerLimits& limits, std::vector<PlannedTable>& tables) {
  if (tables.empty()) return;
  std::vector<PlannedTable*> by_name;
  for (PlannedTable& table : tables) by_name.push_back(&table);
  std::ranges::sort(by_name, {}, [](const PlannedTable* table) { return table->shard.name; });
  Search search(costs, limits, by_name);
  search.apply(search.find());
  const std::int64_t most = most_bytes(tables);
  if (!limits.is_soft && limits.memory_bytes > 0 && most > limits.memory_bytes)
    refuse(limits.memory_bytes, most, tables);
}

}  // namespace braid::worker
