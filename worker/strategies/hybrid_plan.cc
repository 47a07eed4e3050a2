#include "worker/strategies/hybrid_plan.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>

#include "base/error.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

std::string list_of(const std::vector<PlannedTable>& tables) {
  std::string names;
  for (const PlannedTable& table : tables) names += (names.empty() ? "" : ", ") + table.shard.name;
  return names.empty() ? "the model has none" : "the model's are: " + names;
}

void take_users_word(const proto::Strategy& strategy, std::vector<PlannedTable>& tables) {
  std::vector<bool> decided(tables.size());
  for (int m = 0; m < strategy.hybrid().table_size(); ++m) {
    const proto::TableMatch& match = strategy.hybrid().table(m);
    const std::string place = fmt::format("strategy.hybrid.table[{}].match '{}'", m, match.match());
    if (match.match().empty()) throw InvalidArgument(place + ": a pattern for tables' names is needed");
    const RE2 pattern(match.match(), RE2::Quiet);
    if (!pattern.ok()) throw InvalidArgument(place + ": " + pattern.error());
    bool fits_any = false;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      if (!RE2::FullMatch(tables[t].shard.name, pattern)) continue;
      fits_any = true;
      if (decided[t]) continue;
      decided[t] = true;
      tables[t].shard.plan = static_cast<TablePlan>(match.plan());
      tables[t].by_user = match.plan() != proto::TableMatch::AUTO;
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

std::int64_t bytes_of_all(const std::vector<PlannedTable>& tables) {
  std::int64_t most = 0;
  if (tables.empty()) return 0;
  for (int rank = 0; rank < tables.front().shard.world; ++rank) {
    std::int64_t sum = 0;
    for (const PlannedTable& table : tables) {
      TableShard there = table.shard;
      there.rank = rank;
      sum += there.local_bytes();
    }
    most = std::max(most, sum);
  }
  return most;
}

/// Of tables that the job leaves open. `sends_all`: what plan TABLE would do.
void decide(PlannedTable& table, bool sends_all) {
  TableShard& shard = table.shard;
  if (shard.plan != TablePlan::Auto) return;
  shard.plan = TablePlan::Replicate;
  if (!table.can_be_sharded || shard.world == 1) return;
  if (sends_all && table.can_send_all)
    shard.plan = TablePlan::Table;
  else if (shard.local_bytes() > kReplicateBytes)
    shard.plan = TablePlan::Row;
}

void decide_ids(PlannedTable& table, proto::Hybrid::Ids asked, bool sends_all) {
  TableShard& shard = table.shard;
  if (shard.plan != TablePlan::Table) return;
  if (asked == proto::Hybrid::ALL && !table.can_send_all)
    throw InvalidArgument(
        fmt::format("table '{}': strategy.hybrid.ids ALL needs parts of one size and ids of known rank: make "
                    "input.global_batch_size a multiple of the workers, or take DISTINCT",
                    shard.name));
  shard.all_ids = sends_all && table.can_send_all;
}

/// On its owner: what travels of the table in a step where ids are sent as they are, else its elements.
std::int64_t load_of(const PlannedTable& table) {
  constexpr std::int64_t kOfAnId = 4;  // the id itself, and finding its row, in numbers of a row
  const TableShard& shard = table.shard;
  return shard.all_ids ? table.ids_per_example * (shard.dim + kOfAnId) : shard.rows * shard.dim;
}

void deal_whole_tables(std::vector<PlannedTable>& tables) {
  std::vector<PlannedTable*> whole;
  for (PlannedTable& table : tables)
    if (table.shard.plan == TablePlan::Table) whole.push_back(&table);
  std::ranges::stable_sort(whole, std::ranges::greater{}, [](const PlannedTable* t) { return load_of(*t); });
  if (whole.empty()) return;
  std::vector<std::int64_t> load(static_cast<std::size_t>(whole.front()->shard.world));
  for (PlannedTable* table : whole) {
    const auto least = std::ranges::min_element(load);
    table->shard.owner = static_cast<int>(least - load.begin());
    *least += load_of(*table);
  }
}

void keep_memory_limit(std::int64_t limit, std::vector<PlannedTable>& tables) {
  if (limit == 0) return;
  while (bytes_of_all(tables) > limit) {
    PlannedTable* largest = nullptr;
    for (PlannedTable& table : tables)
      if (!table.by_user && table.can_be_sharded && table.shard.world > 1 &&
          (!table.shard.sharded() || table.shard.plan == TablePlan::Table) &&
          (!largest || table.shard.elements() > largest->shard.elements()))
        largest = &table;
    if (!largest)
      throw InvalidArgument(
          fmt::format("strategy.hybrid.memory_bytes {}: tables and slots take {} bytes on a worker at least",
                      limit, bytes_of_all(tables)));
    largest->shard.plan = TablePlan::Row;
    largest->shard.all_ids = false;
    deal_whole_tables(tables);
  }
}

/// That a rank receives in a step: lists of ids, rows and gradients.
std::int64_t exchanged(const TableShard& shard, std::int64_t ids) {
  const std::int64_t others = shard.world - 1, n = shard.all_ids ? ids : std::min(ids, shard.rows);
  const std::int64_t row = shard.dim * static_cast<std::int64_t>(sizeof(float)), id = sizeof(std::int64_t);
  switch (shard.plan) {
    case TablePlan::Replicate:
      return others * n * (id + row);
    case TablePlan::Column:
      return others * n * (id + 2 * row / shard.world);
    default:
      return others * n * (id + 2 * row) / shard.world;
  }
}

std::string bytes_text(std::int64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  if (bytes < 10 << 10) return fmt::format("{} B", bytes);
  if (bytes < 10 << 20) return fmt::format("{:.1f} KiB", amount / 1024);
  return fmt::format("{:.1f} MiB", amount / (1 << 20));
}

}  // namespace

void plan_tables(const proto::Strategy& strategy, bool on_device, std::vector<PlannedTable>& tables) {
  const proto::Hybrid::Ids asked = strategy.hybrid().ids();
  const bool sends_all = asked == proto::Hybrid::ALL || (asked == proto::Hybrid::AUTO && on_device);
  for (PlannedTable& table : tables) table.shard.plan = TablePlan::Auto;
  take_users_word(strategy, tables);
  for (PlannedTable& table : tables) {
    decide(table, sends_all);
    check_users_word(table);
    decide_ids(table, asked, sends_all);
  }
  deal_whole_tables(tables);
  keep_memory_limit(strategy.hybrid().memory_bytes(), tables);
}

std::string plan_text(const std::vector<PlannedTable>& tables, const std::vector<std::int64_t>& ids) {
  std::string text;
  std::int64_t traffic = 0;
  std::size_t longest = 5;
  for (const PlannedTable& table : tables) longest = std::max(longest, table.shard.name.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TableShard& shard = tables[t].shard;
    const std::int64_t bytes = ids[t] > 0 ? exchanged(shard, ids[t]) : 0;
    traffic += bytes;
    text += fmt::format("table {:<{}} [{},{}] {}{}{}: {} here, at most {} received a step\n", shard.name,
                        longest, shard.rows, shard.dim, table_plan_name(shard.plan),
                        shard.plan == TablePlan::Table ? fmt::format(" on worker {}", shard.owner) : "",
                        tables[t].by_user ? " (asked for)" : "", bytes_text(shard.local_bytes()),
                        ids[t] > 0 ? bytes_text(bytes) : "?");
  }
  text += fmt::format("tables: {} of {} workers' {} at most, at most {} received a step\n", tables.size(),
                      tables.empty() ? 1 : tables.front().shard.world, bytes_text(bytes_of_all(tables)),
                      bytes_text(traffic));
  return text;
}

}  // namespace braid::worker
