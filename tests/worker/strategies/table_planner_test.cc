// The planner on random tables and limits.
#include "worker/strategies/table_planner.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>

#include "base/error.h"
#include "tests/worker/strategies/planned_tables.h"
#include "worker/strategies/table_loads.h"
#include "worker/strategies/table_rule.h"

namespace braid::worker {
namespace {

using Random = std::mt19937;
std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

std::vector<PlannedTable> random_tables(Random& random, int world, int count) {
  std::vector<PlannedTable> tables = tables_of(world, {});
  for (int t = 0; t < count; ++t) {
    const std::int64_t rows = std::int64_t{1} << draw(random, 0, 26);
    PlannedTable table =
        tables_of(world, {{rows, draw(random, 1, 40) * (draw(random, 0, 1) ? world : 1)}})[0];
    table.shard.name = "t" + std::to_string(t);
    table.shard.row_wise = draw(random, 0, 3) == 0;
    table.can_send_all = draw(random, 0, 3) != 0;
    table.can_be_sharded = draw(random, 0, 9) != 0;
    const std::int64_t examples = draw(random, 1, 5000);
    table.ids_per_example = draw(random, 1, 30);
    table.ids = examples * table.ids_per_example;
    table.bags = draw(random, 0, 1) ? examples : 0;
    tables.push_back(table);
  }
  return tables;
}

struct Case {
  StepCosts costs;
  PlannerLimits limits;
  std::vector<PlannedTable> tables;
};

Case random_case(Random& random) {
  constexpr std::array kWorlds{1, 2, 3, 4, 8, 16, 64};
  Case drawn;
  const int world = kWorlds[static_cast<std::size_t>(draw(random, 0, 6))];
  drawn.limits.sends_all = draw(random, 0, 1) == 1;
  drawn.costs = card_costs(drawn.limits.sends_all ? "H200" : "CPU");
  drawn.tables = random_tables(random, world, static_cast<int>(draw(random, 1, 25)));
  return drawn;
}

double step_us(const Case& drawn) {
  const WorkerLoads loads = loads_of(drawn.costs, drawn.tables);
  return step_of(drawn.costs, loads.world(), loads.peak()).total();
}

TEST(TablePlannerTest, EachTableHasOnePlanThatItCanHaveAndNoPlanByBytesIsBetter) {
  Random random(1);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    Case drawn = random_case(random);
    Case by_bytes = drawn;
    for (PlannedTable& table : by_bytes.tables) table.shard.plan = TablePlan::Auto;
    plan_by_bytes(drawn.limits.sends_all, 0, by_bytes.tables);
    choose_plans(drawn.costs, drawn.limits, drawn.tables);
    for (const PlannedTable& table : drawn.tables) {
      const TableShard& shard = table.shard;
      ASSERT_NE(shard.plan, TablePlan::Auto);
      ASSERT_GE(shard.owner, 0);
      ASSERT_LT(shard.owner, shard.world);
      ASSERT_TRUE(table.can_be_sharded || !shard.sharded());
      ASSERT_TRUE(shard.plan != TablePlan::Column || table.can_have_columns());
      ASSERT_TRUE(!shard.all_ids || (drawn.limits.sends_all && table.can_send_all));
    }
    ASSERT_LE(step_us(drawn), step_us(by_bytes) * (1 + 1e-9));
  }
}

TEST(TablePlannerTest, LimitsAreKeptOrRefused) {
  Random random(2);
  int kept = 0, refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    Case drawn = random_case(random);
    std::vector<PlannedTable> by_rows = drawn.tables;
    for (PlannedTable& table : by_rows) {
      table.shard.plan = table.can_be_sharded ? TablePlan::Row : TablePlan::Replicate;
      table.shard.all_ids = false;
    }
    // What rows need is enough; a tenth of it never is.
    const std::int64_t enough = most_bytes(by_rows);
    drawn.limits.memory_bytes = enough + draw(random, 0, enough);
    choose_plans(drawn.costs, drawn.limits, drawn.tables);
    ASSERT_LE(most_bytes(drawn.tables), drawn.limits.memory_bytes);
    ++kept;
    drawn.limits.memory_bytes = std::max<std::int64_t>(1, enough / 10);
    try {
      choose_plans(drawn.costs, drawn.limits, drawn.tables);
      ASSERT_LE(most_bytes(drawn.tables), drawn.limits.memory_bytes);
    } catch (const InvalidArgument&) {
      ++refused;
    }
  }
  EXPECT_EQ(kept, 300);
  EXPECT_GT(refused, 250);
}

TEST(TablePlannerTest, TheOrderOfTablesChangesNothing) {
  Random random(3);
  for (int trial = 0; trial < 100; ++trial) {
    Case drawn = random_case(random);
    Case permuted = drawn;
    std::ranges::shuffle(permuted.tables, random);
    choose_plans(drawn.costs, drawn.limits, drawn.tables);
    choose_plans(permuted.costs, permuted.limits, permuted.tables);
    std::map<std::string, TableShard> by_name;
    for (const PlannedTable& table : permuted.tables) by_name.emplace(table.shard.name, table.shard);
    for (const PlannedTable& table : drawn.tables) {
      const TableShard& other = by_name.at(table.shard.name);
      ASSERT_EQ(table.shard.plan, other.plan) << trial << table.shard.name;
      ASSERT_EQ(table.shard.owner, other.owner) << trial << table.shard.name;
      ASSERT_EQ(table.shard.all_ids, other.all_ids) << trial << table.shard.name;
    }
  }
}

TEST(TablePlannerTest, AGivenPlanStays) {
  Random random(4);
  for (int trial = 0; trial < 50; ++trial) {
    Case drawn = random_case(random);
    PlannedTable& given = drawn.tables.front();
    given.can_be_sharded = given.by_user = true;
    given.shard.plan = TablePlan::Row;
    choose_plans(drawn.costs, drawn.limits, drawn.tables);
    EXPECT_EQ(given.shard.plan, TablePlan::Row);
  }
}

TEST(TablePlannerTest, EqualTablesAreDealtEvenly) {
  std::vector<PlannedTable> tables =
      tables_of(4, std::vector<std::pair<std::int64_t, std::int64_t>>(16, {1000000, 33}));
  for (PlannedTable& table : tables) {
    table.ids = 20000;
    table.bags = 1000;
  }
  choose_plans(card_costs("H100"), {.sends_all = true}, tables);
  std::map<int, int> owned;
  for (const PlannedTable& table : tables) {
    EXPECT_EQ(table.shard.plan, TablePlan::Table);  // 33 columns cannot be dealt to 4
    ++owned[table.shard.owner];
  }
  for (const auto& [owner, count] : owned) EXPECT_EQ(count, 4) << owner;
}

TEST(TablePlannerTest, TwoThousandTablesTakeLessThanASecond) {
  Random random(5);
  std::vector<PlannedTable> tables = random_tables(random, 64, 2000);
  for (PlannedTable& table : tables) table.can_be_sharded = true;
  const auto seconds_within = [&](std::int64_t limit) {
    const auto begin = std::chrono::steady_clock::now();
    choose_plans(card_costs("H200"), {.sends_all = true, .memory_bytes = limit}, tables);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double without = seconds_within(0);
  std::vector<PlannedTable> by_rows = tables;
  for (PlannedTable& table : by_rows) table.shard.plan = TablePlan::Row;
  const double within = seconds_within(most_bytes(by_rows) * 5 / 4);
  RecordProperty("without_limit", std::to_string(without));
  RecordProperty("with_limit", std::to_string(within));
  fmt::print("2000 tables: {:.2f} s, with a limit {:.2f} s\n", without, within);
  EXPECT_LT(without, 10);  // 0.2 where nothing else runs
  EXPECT_LT(within, 10);
}

}  // namespace
}  // namespace braid::worker
