#include "worker/strategies/table_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tests/worker/strategies/planned_tables.h"

namespace braid::worker {
namespace {

using enum LoadPart;

TEST(DistinctRowsTest, AgreesWithTheLawSummedUp) {
  for (const double rows : {1.0, 30.0, 5000.0, 300000.0})
    for (const double ids : {1.0, 10.0, 1000.0, 1e6}) {
      double harmonic = 0, expected = 0;
      for (double r = 1; r <= rows; ++r) harmonic += 1 / r;
      for (double r = 1; r <= rows; ++r) expected += -std::expm1(-ids / harmonic / r);
      const double found = distinct_rows(ids, rows);
      EXPECT_LE(found, std::min(ids, rows));
      EXPECT_NEAR(found, std::clamp(expected, 1.0, std::min(ids, rows)), 0.05 * found + 1)
          << ids << " of " << rows;
    }
}

TEST(TableLoadsTest, AWholeTablesBytesAreThoseThatTravel) {
  PlannedTable table = tables_of(4, {{1000000, 16}}).front();
  table.ids = 600;
  table.bags = 200;
  const TableLoad load = load_of(card_costs("H100"), table, TablePlan::Table, true);
  EXPECT_EQ(load.owner[IdsIn], 3 * 600 * 8);
  EXPECT_EQ(load.everyone[IdsOut], 600 * 8);
  EXPECT_EQ(load.owner[RowsOut], 3 * 200 * 64);  // sums
  EXPECT_EQ(load.owner[GradientsIn], 3 * 200 * 64);
  EXPECT_EQ(load.everyone[RowsIn], 200 * 64);
  EXPECT_EQ(load.everyone[Update], 0);
  EXPECT_EQ(load.owner.memory_bytes, 1000000 * 16 * 2 * 4);
  table.bags = 0;
  EXPECT_EQ(load_of(card_costs("H100"), table, TablePlan::Table, true).owner[RowsOut], 3 * 600 * 64);
  table.number_bytes = 2;
  const TableLoad halves = load_of(card_costs("H100"), table, TablePlan::Table, true);
  EXPECT_EQ(halves.owner[RowsOut], 3 * 600 * 32);
  EXPECT_EQ(halves.owner[GradientsIn], 3 * 600 * 32);
  EXPECT_EQ(halves.owner.memory_bytes, load.owner.memory_bytes) << "rows are floats";
}

TEST(TableLoadsTest, ByColumnsEachWorkerHasItsPartOfWhatTheOwnerHad) {
  PlannedTable table = tables_of(4, {{1000000, 64}}).front();
  table.bags = 100;
  const StepCosts costs = card_costs("H100");
  const TableLoad whole = load_of(costs, table, TablePlan::Table, true);
  const TableLoad columns = load_of(costs, table, TablePlan::Column, true);
  EXPECT_EQ(columns.owner[IdsIn], whole.owner[IdsIn]);
  EXPECT_EQ(columns.owner[RowsOut], whole.owner[RowsOut] / 4);
  EXPECT_EQ(columns.everyone[RowsIn], columns.owner[RowsOut]);
  EXPECT_LT(columns.owner[Lookup], whole.owner[Lookup]);
  EXPECT_EQ(columns.owner.memory_bytes, whole.owner.memory_bytes / 4);
}

TEST(TableLoadsTest, OnADeviceListsTravelWithAllOfTheirRoom) {
  const PlannedTable table = tables_of(4, {{1000000, 16}}).front();
  const TableLoad device = load_of(card_costs("H100"), table, TablePlan::Row, false);
  EXPECT_EQ(device.owner[RowsIn], 3 * 1000 * 64);
  const TableLoad host = load_of(card_costs("CPU"), table, TablePlan::Row, false);
  EXPECT_NEAR(host.owner[RowsIn], 3 * distinct_rows(1000, 1e6) / 4 * 64, 1);
  EXPECT_GT(host.owner[Lists], 0);
}

TEST(TableLoadsTest, DenseSumsMoveAllRowsTwiceAndTakeTheirMemory) {
  const PlannedTable table = tables_of(4, {{500, 16}}).front();
  const StepCosts costs = card_costs("H100");
  const TableLoad dense = load_of(costs, table, TablePlan::Replicate, true);
  EXPECT_EQ(dense.owner[GradientsIn], 2 * 3.0 / 4 * 500 * 68);
  EXPECT_EQ(dense.owner[Lists], 0);
  EXPECT_EQ(dense.owner[IdsIn] + dense.owner[RowsIn], 0);
  const TableLoad lists = load_of(costs, table, TablePlan::Replicate, false);
  EXPECT_EQ(lists.owner[GradientsIn], 3 * 500 * (8 + 64));
  EXPECT_EQ(dense.owner.memory_bytes - lists.owner.memory_bytes, 2 * 500 * 68);
}

TEST(TableLoadsTest, OneWorkerExchangesNothing) {
  const PlannedTable table = tables_of(1, {{1000, 16}}).front();
  const TableLoad load = load_of(card_costs("CPU"), table, TablePlan::Replicate, false);
  EXPECT_EQ(load.owner.received_bytes(), 0);
  EXPECT_GT(load.owner[Lookup], 0);
  EXPECT_GT(load.owner[Update], load.owner[Lookup]);
}

TEST(WorkerLoadsTest, PeaksAreThoseOfSumsHoweverTheyWereMade) {
  const StepCosts costs = card_costs("H100");
  std::vector<PlannedTable> tables = tables_of(3, {{1000, 24}, {50000, 6}, {2000, 12}, {900, 3}});
  tables[0].shard.plan = TablePlan::Table;
  tables[0].shard.owner = 2;
  tables[1].shard.plan = TablePlan::Table;
  tables[1].shard.owner = 0;
  tables[2].shard.plan = TablePlan::Column;
  tables[3].shard.plan = TablePlan::Row;
  const WorkerLoads all = loads_of(costs, tables);
  WorkerLoads again = loads_of(costs, std::span(tables).first(1));
  const TableLoad second = load_of(costs, tables[1], TablePlan::Table, false);
  const Load foreseen = again.peak_with(second, 0);
  again.add(second, 0);
  for (std::size_t part = 0; part < foreseen.of.size(); ++part)
    EXPECT_DOUBLE_EQ(foreseen.of[part], again.peak().of[part]);
  Load expected = all.of(0);
  for (int rank = 1; rank < 3; ++rank) expected.raise_to(all.of(rank));
  for (std::size_t part = 0; part < expected.of.size(); ++part)
    EXPECT_NEAR(all.peak().of[part], expected.of[part], 1e-9 * expected.of[part]);
}

TEST(TableCostsTest, CardsAreKnownByTheirDescriptions) {
  EXPECT_EQ(card_costs("cuda:0 NVIDIA H200").card, "H200");
  EXPECT_EQ(card_costs("").card, "CPU");
  const StepCosts unknown = card_costs("cuda:0 NVIDIA L4");
  EXPECT_EQ(unknown.memory_bytes_per_us, card_costs("H100").memory_bytes_per_us);
  EXPECT_NE(unknown.source.find("for lack of others"), std::string::npos);
  for (const std::string& card : known_cards()) EXPECT_EQ(card_costs(card).card, card);
}

TEST(TableCostsTest, BetweenHostsTheSlowerLinkDecides) {
  StepCosts costs = card_costs("H100");
  EXPECT_EQ(exchange_us(costs, 8, 0), 0);
  EXPECT_EQ(exchange_us(costs, 1, 1e9), 0);
  EXPECT_DOUBLE_EQ(exchange_us(costs, 8, 1e6), costs.exchange_us + 1e6 / costs.link_bytes_per_us);
  EXPECT_DOUBLE_EQ(exchange_us(costs, 64, 1e6),
                   costs.exchange_us + 1e6 * 56 / 63 / costs.host_link_bytes_per_us);
}

TEST(TableLoadsTest, HotRowsSaveIdsAndRowsAndTakeMemory) {
  const StepCosts costs = card_costs("CPU");
  for (const int world : {2, 8}) {
    PlannedTable table = tables_of(world, {{100000, 16}}).front();
    table.ids = 4096;
    const Load cold = load_of(costs, table, TablePlan::Row, false).everyone;
    Load last = cold;
    for (const std::int64_t hot : {10, 1000, 4000}) {
      table.shard.hot_rows = hot;
      const Load its = load_of(costs, table, TablePlan::Row, false).everyone;
      EXPECT_LT(its[RowsIn], last[RowsIn]) << hot;
      EXPECT_LT(its[IdsIn], last[IdsIn]) << hot;
      EXPECT_DOUBLE_EQ(its.memory_bytes, cold.memory_bytes + static_cast<double>(hot * 2 * 16 * 4));
      EXPECT_GT(its[GradientsIn], 0);
      last = its;
    }
    table.shard.hot_rows = 1000;
    EXPECT_DOUBLE_EQ(load_of(costs, table, TablePlan::Column, false).everyone.memory_bytes, cold.memory_bytes)
        << "other plans have none";
  }
}

}  // namespace
}  // namespace braid::worker
