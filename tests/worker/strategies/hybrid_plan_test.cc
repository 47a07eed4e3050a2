// What a job says of its tables' plans, and what it may not say.
#include "worker/strategies/hybrid_plan.h"

#include <gtest/gtest.h>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "tests/worker/strategies/planned_tables.h"
#include "worker/job/job.h"
#include "worker/strategies/table_rule.h"

namespace braid::worker {
namespace {

using enum TablePlan;

proto::Strategy strategy_of(const std::string& hybrid) {
  proto::Job job = parse_job("strategy { kind: HYBRID hybrid { " + hybrid + " } }", "test");
  fill_job_defaults(job);
  return job.strategy();
}

std::vector<TablePlan> planned(std::vector<PlannedTable>& tables, const std::string& hybrid,
                               bool on_device = false) {
  plan_tables(strategy_of(hybrid), on_device, card_costs(on_device ? "H100" : "CPU"), tables);
  std::vector<TablePlan> plans;
  for (const PlannedTable& table : tables) plans.push_back(table.shard.plan);
  return plans;
}

std::string all_tables(const std::string& plan) { return "table { match: '.*' plan: " + plan + " }"; }

TEST(HybridPlanTest, TheJobsWordWinsAndTheFirstThatFitsDecides) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}, {1000, 8}});
  const auto plans = planned(
      tables, "table { match: 't1' plan: TABLE } table { match: 't[12]' plan: COLUMN } " + all_tables("ROW"));
  EXPECT_EQ(plans, (std::vector{Row, Table, Column}));
  for (const PlannedTable& table : tables) EXPECT_TRUE(table.by_user);
}

TEST(HybridPlanTest, HotRowsAreOfPlanRow) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}, {100000, 8}});
  planned(tables, "table { match: 't0' plan: ROW hot_rows: 1000 } table { match: 't1' hot_rows: 10 } " +
                      all_tables("TABLE"));
  EXPECT_EQ(tables[0].shard.most_hot(), 100);
  EXPECT_EQ(tables[1].shard.hot_rows, 10);
  EXPECT_EQ(tables[2].shard.hot_rows, 0);
  EXPECT_EQ(message_of([&] { planned(tables, "table { match: 't0' plan: COLUMN hot_rows: 10 }"); }),
            "strategy.hybrid.table[0].match 't0': hot_rows are of plan ROW, and the plan is COLUMN");
}

TEST(HybridPlanTest, AWordOfAutoLeavesTheTableOpen) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}});
  planned(tables, "table { match: 't0' plan: AUTO } " + all_tables("ROW"));
  EXPECT_FALSE(tables[0].by_user);
  EXPECT_TRUE(tables[1].by_user);
}

TEST(HybridPlanTest, ALimitThatNothingKeepsIsRefusedWithTheTableAndTheNumbers) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}, {1000, 8}});
  // 6400 + 3.2 M + 64000 bytes with slots, halved.
  const std::string refusal = message_of([&] { planned(tables, "memory_bytes: 3000000"); });
  EXPECT_NE(refusal.find("memory_bytes 3000000: tables and slots take 3235200 bytes on a worker at least"),
            std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("table 't1' [100000,8]"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("3200000 bytes"), std::string::npos) << refusal;
  planned(tables, "memory_bytes: 3235200");
  EXPECT_LE(most_bytes(tables), 3235200);
}

TEST(HybridPlanTest, ReplicatedByTheJobTheyMayBeTooLarge) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}});
  const std::string refusal =
      message_of([&] { planned(tables, "memory_bytes: 4000000 table { match: 't1' plan: REPLICATE }"); });
  EXPECT_NE(refusal.find("plan REPLICATE: 6400000 bytes"), std::string::npos) << refusal;
}

TEST(HybridPlanTest, WhatATableCannotHaveIsRefusedWithWhatWouldDo) {
  auto tables = tables_of(3, {{100, 8}});
  EXPECT_NE(message_of([&] {
              planned(tables, all_tables("COLUMN"));
            }).find("8 columns cannot be dealt to 3 workers: take ROW"),
            std::string::npos);
  tables[0].shard.row_wise = true;
  EXPECT_NE(message_of([&] { planned(tables, all_tables("COLUMN")); }).find("needs whole rows"),
            std::string::npos);
  tables[0].can_be_sharded = false;
  EXPECT_NE(message_of([&] { planned(tables, all_tables("ROW")); }).find("REPLICATE"), std::string::npos);
  EXPECT_EQ(planned(tables, ""), std::vector{Replicate});
  EXPECT_NE(message_of([&] { planned(tables, "table { match: 'u' plan: ROW }"); }).find("fits no table"),
            std::string::npos);
  EXPECT_NE(message_of([&] { planned(tables, "table { match: '(' plan: ROW }"); }).find("match '('"),
            std::string::npos);
}

TEST(HybridPlanTest, RowWiseTablesAreNeverPlannedByColumns) {
  auto tables = dlrm_v2_tables(8);
  for (PlannedTable& table : tables) table.shard.row_wise = true;
  for (const TablePlan plan : planned(tables, "", true)) EXPECT_NE(plan, Column);
}

TEST(HybridPlanTest, TablesWhoseIdsCannotAllBeSentUseLists) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}});
  for (PlannedTable& table : tables) table.can_send_all = false;
  planned(tables, "", true);
  for (const PlannedTable& table : tables) EXPECT_FALSE(table.shard.all_ids);
  planned(tables, all_tables("TABLE"), true);
  EXPECT_FALSE(tables[0].shard.all_ids);
  const std::string message = message_of([&] { planned(tables, "ids: ALL " + all_tables("TABLE")); });
  EXPECT_NE(message.find("table 't0': strategy.hybrid.ids ALL needs parts of one size"), std::string::npos)
      << message;
}

TEST(HybridPlanTest, OneWorkerHasNothingToSpread) {
  auto tables = tables_of(1, {{100000, 8}});
  EXPECT_EQ(planned(tables, ""), std::vector{Replicate});
}

TEST(HybridPlanTest, BetweenGpusATableWithHalfOfAllIdsIsSplit) {
  for (const int world : {2, 8, 64}) {
    SCOPED_TRACE(world);
    auto tables = dlrm_v2_tables(world);
    planned(tables, "memory_bytes: 126000000000", true);
    EXPECT_EQ(tables[20].shard.plan, Column);
    const auto prediction =
        predict_tables(strategy_of("memory_bytes: 126000000000"), true, card_costs("H100"), tables);
    EXPECT_LT(prediction.balance, 1.4);
    if (world > 2) {
      EXPECT_GT(prediction.by_bytes_balance, 2 * prediction.balance);
    }
    EXPECT_LE(prediction.step.total(), prediction.by_bytes_us);
    EXPECT_LE(prediction.most_memory_bytes, 126e9);
  }
}

TEST(HybridPlanTest, BetweenHostsTinyTablesAreReplicatedAndLargeOnesAreNot) {
  for (const int world : {2, 8}) {
    auto tables = dlrm_v2_tables(world);
    planned(tables, "");
    EXPECT_EQ(tables[5].shard.plan, Replicate);   // 3 rows
    EXPECT_EQ(tables[16].shard.plan, Replicate);  // 4
    EXPECT_NE(tables[20].shard.plan, Replicate);
    EXPECT_NE(tables[0].shard.plan, Replicate);
  }
}

TEST(HybridPlanTest, TheTextSaysWhereEachTableIs) {
  auto tables = tables_of(2, {{100, 8}, {100000, 8}});
  planned(tables, all_tables("TABLE"));
  const std::string text = plan_text(card_costs("CPU"), tables);
  EXPECT_NE(text.find("t0    [100,8] TABLE on worker"), std::string::npos) << text;
  EXPECT_NE(text.find("(asked for)"), std::string::npos) << text;
  EXPECT_NE(text.find("1000 ids looked up"), std::string::npos) << text;
}

}  // namespace
}  // namespace braid::worker
