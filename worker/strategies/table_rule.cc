#include "worker/strategies/table_rule.h"

#include <algorithm>

namespace braid::worker {
namespace {

void decide(PlannedTable& table, bool sends_all) {
  TableShard& shard = table.shard;
  if (shard.plan != TablePlan::Auto) return;
  shard.plan = TablePlan::Replicate;
  shard.all_ids = false;
  if (!table.can_be_sharded || shard.world == 1) return;
  if (sends_all && table.can_send_all) {
    shard.plan = TablePlan::Table;
    shard.all_ids = true;
  } else if (shard.local_bytes() > kReplicateBytes) {
    shard.plan = TablePlan::Row;
  }
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

}  // namespace

std::int64_t most_bytes(const std::vector<PlannedTable>& tables) {
  if (tables.empty()) return 0;
  std::int64_t all = 0;
  std::vector<std::int64_t> beside(static_cast<std::size_t>(tables.front().shard.world));
  for (const PlannedTable& table : tables) {
    const TableShard& shard = table.shard;
    const bool has_owner = shard.plan == TablePlan::Table && shard.world > 1;
    const std::int64_t held = shard.bytes_of_rows(shard.buckets().held() + shard.most_hot());
    const std::int64_t elsewhere = has_owner ? shard.bytes_of_rows(1) : held;
    all += elsewhere;
    beside[static_cast<std::size_t>(shard.owner)] += held - elsewhere;
  }
  return all + *std::ranges::max_element(beside);
}

void plan_by_bytes(bool sends_all, std::int64_t limit, std::vector<PlannedTable>& tables) {
  for (PlannedTable& table : tables) decide(table, sends_all);
  deal_whole_tables(tables);
  while (limit > 0 && most_bytes(tables) > limit) {
    PlannedTable* largest = nullptr;
    for (PlannedTable& table : tables)
      if (!table.by_user && table.can_be_sharded && table.shard.world > 1 &&
          (!table.shard.sharded() || table.shard.plan == TablePlan::Table) &&
          (!largest || table.shard.elements() > largest->shard.elements()))
        largest = &table;
    if (!largest) return;
    largest->shard.plan = TablePlan::Row;
    largest->shard.all_ids = false;
    deal_whole_tables(tables);
  }
}

}  // namespace braid::worker
