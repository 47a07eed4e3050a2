#include "worker/strategies/hybrid_plan.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/strategies/table_loads.h"
#include "worker/strategies/table_planner.h"
#include "worker/strategies/table_rule.h"
#include "worker/watch/progress_line.h"

namespace braid::worker {
namespace {

std::string list_of(const std::vector<PlannedTable>& tables) {
  std::string names;
  for (const PlannedTable& table : tables) names += (names.empty() ? "" : ", ") + table.shard.name;
  return names.empty() ? "the model has none" : "the model's are: " + names;
}

using Visit = std::function<void(PlannedTable&, TablePlan)>;

/// Also the hot rows that the user wants.
void find_users_word(const proto::Strategy& strategy, std::vector<PlannedTable>& tables, const Visit& visit) {
  for (PlannedTable& table : tables) {
    table.by_user = false;
    table.shard.hot_rows = 0;
  }
  std::vector<bool> decided(tables.size());
  for (int m = 0; m < strategy.hybrid().table_size(); ++m) {
    const proto::TableMatch& match = strategy.hybrid().table(m);
    const std::string place = fmt::format("strategy.hybrid.table[{}].match '{}'", m, match.match());
    if (match.match().empty()) throw InvalidArgument(place + ": a pattern for tables' names is needed");
    const RE2 pattern(match.match(), RE2::Quiet);
    if (!pattern.ok()) throw InvalidArgument(place + ": " + pattern.error());
    if (match.hot_rows() > 0 && match.plan() != proto::TableMatch::AUTO &&
        match.plan() != proto::TableMatch::ROW)
      throw InvalidArgument(fmt::format("{}: hot_rows are of plan ROW, and the plan is {}", place,
                                        proto::TableMatch::Plan_Name(match.plan())));
    bool fits_any = false;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      if (!RE2::FullMatch(tables[t].shard.name, pattern)) continue;
      fits_any = true;
      if (decided[t]) continue;
      decided[t] = true;
      tables[t].by_user = match.plan() != proto::TableMatch::AUTO;
      tables[t].shard.hot_rows = match.hot_rows();
      if (visit && tables[t].by_user) visit(tables[t], static_cast<TablePlan>(match.plan()));
    }
    if (!fits_any) throw InvalidArgument(place + " fits no table; " + list_of(tables));
  }
}

void check_users_word(const PlannedTable& table) {
  const TableShard& shard = table.shard;
  const std::string who = fmt::format("table '{}', plan {}: ", shard.name, table_plan_name(shard.plan));
  if (shard.sharded() && !table.can_be_sharded)
    throw InvalidArgument(who +
                          "something beside gathers reads it, so every worker needs all of it: REPLICATE");
  if (shard.plan == TablePlan::Column && shard.row_wise)
    throw InvalidArgument(who + "a row-wise optimizer needs whole rows: take ROW or TABLE");
  if (shard.plan == TablePlan::Column && shard.dim % shard.world != 0)
    throw InvalidArgument(
        who + fmt::format("{} columns cannot be dealt to {} workers: take ROW", shard.dim, shard.world));
}

void check_ids(const PlannedTable& table, proto::Hybrid::Ids asked) {
  if (asked == proto::Hybrid::ALL && table.shard.plan == TablePlan::Table && !table.can_send_all)
    throw InvalidArgument(
        fmt::format("table '{}': strategy.hybrid.ids ALL needs parts of one size and ids of known rank: make "
                    "input.global_batch_size a multiple of the workers, or take DISTINCT",
                    table.shard.name));
}

}  // namespace

bool sends_all_ids(const proto::Strategy& strategy, bool on_device) {
  const proto::Hybrid::Ids asked = strategy.hybrid().ids();
  return asked == proto::Hybrid::ALL || (asked == proto::Hybrid::AUTO && on_device);
}

void plan_tables(const proto::Strategy& strategy, bool on_device, const StepCosts& costs,
                 std::vector<PlannedTable>& tables) {
  for (PlannedTable& table : tables) table.shard.plan = TablePlan::Auto;
  find_users_word(strategy, tables, [](PlannedTable& table, TablePlan plan) { table.shard.plan = plan; });
  for (const PlannedTable& table : tables) {
    if (table.by_user) check_users_word(table);
    check_ids(table, strategy.hybrid().ids());
  }
  PlannerLimits limits{sends_all_ids(strategy, on_device), strategy.hybrid().memory_bytes(), false};
  if (limits.memory_bytes == 0) limits = {limits.sends_all, memory_for_tables(costs), true};
  choose_plans(costs, limits, tables);
}

void mark_users_word(const proto::Strategy& strategy, std::vector<PlannedTable>& tables) {
  find_users_word(strategy, tables, {});
}

TablesPrediction predict_tables(const proto::Strategy& strategy, bool on_device, const StepCosts& costs,
                                const std::vector<PlannedTable>& tables) {
  TablesPrediction prediction;
  if (tables.empty()) return prediction;
  const int world = tables.front().shard.world;
  const WorkerLoads loads = loads_of(costs, tables);
  const Load peak = loads.peak();
  prediction.step = step_of(costs, world, peak);
  prediction.most_memory_bytes = peak.memory_bytes;
  prediction.mean_memory_bytes = loads.mean_bytes();
  double most = 0, sum = 0;
  for (int rank = 0; rank < world; ++rank) {
    const double busy = busy_us(costs, world, loads.of(rank));
    prediction.received_bytes = std::max(prediction.received_bytes, loads.of(rank).received_bytes());
    most = std::max(most, busy);
    sum += busy;
  }
  prediction.balance = sum > 0 ? most * world / sum : 1;
  for (const PlannedTable& table : tables)
    if (table.shard.all_ids && !table.shard.sharded())
      prediction.dense_sums_bytes += 4.0 * static_cast<double>(table.shard.rows * (table.shard.dim + 1));
  std::vector<PlannedTable> by_bytes = tables;
  for (PlannedTable& table : by_bytes)
    if (!table.by_user) table.shard.plan = TablePlan::Auto;
  const std::int64_t limit = strategy.hybrid().memory_bytes();
  plan_by_bytes(sends_all_ids(strategy, on_device), limit > 0 ? limit : memory_for_tables(costs), by_bytes);
  const WorkerLoads rule = loads_of(costs, by_bytes);
  prediction.by_bytes_us = step_of(costs, world, rule.peak()).total();
  double rule_most = 0, rule_sum = 0;
  for (int rank = 0; rank < world; ++rank) {
    const double busy = busy_us(costs, world, rule.of(rank));
    rule_most = std::max(rule_most, busy);
    rule_sum += busy;
  }
  prediction.by_bytes_balance = rule_sum > 0 ? rule_most * world / rule_sum : 1;
  return prediction;
}

std::string plan_text(const StepCosts& costs, const std::vector<PlannedTable>& tables) {
  std::string text;
  std::size_t longest = 5;
  for (const PlannedTable& table : tables) longest = std::max(longest, table.shard.name.size());
  for (const PlannedTable& table : tables) {
    const TableShard& shard = table.shard;
    const TableLoad load = load_of(costs, table, shard.plan, shard.all_ids);
    const double received = std::max(load.owner.received_bytes(), load.everyone.received_bytes());
    const double us =
        std::max(busy_us(costs, shard.world, load.owner), busy_us(costs, shard.world, load.everyone));
    text += fmt::format(
        "table {:<{}} [{},{}] {}{}{}{}{}: {} of memory, {} ids looked up, {} received, {:.1f} us a step\n",
        shard.name, longest, shard.rows, shard.dim, table_plan_name(shard.plan),
        shard.plan == TablePlan::Table ? fmt::format(" on worker {}", shard.owner) : "",
        !shard.all_ids    ? ""
        : shard.sharded() ? ", all ids"
                          : ", dense sums",
        shard.hot.empty() ? "" : fmt::format(", {} hot rows", shard.hot.size()),
        table.by_user ? " (asked for)" : "", bytes_text(load.owner.memory_bytes), table.ids_of_step(),
        bytes_text(received), us);
  }
  return text;
}

}  // namespace braid::worker
