#include "worker/strategies/table_plan_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "tests/worker/strategies/planned_tables.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

std::vector<PlannedTable> decided() {
  std::vector<PlannedTable> tables = tables_of(4, {{100, 8}, {2000, 8}, {30, 16}});
  tables[0].shard.plan = TablePlan::Table;
  tables[0].shard.owner = 3;
  tables[0].shard.all_ids = true;
  tables[1].shard.plan = TablePlan::Column;
  tables[1].shard.name = "a name/with spaces";
  tables[2].shard.plan = TablePlan::Replicate;
  tables[2].bags = 7;
  return tables;
}

TEST(TablePlanFileTest, WhatWasWrittenIsRead) {
  const std::vector<PlannedTable> tables = decided();
  StepCosts costs = card_costs("H200");
  costs.exchange_us = 12.000000000000002;
  const std::string text = table_plan_text(0xabcdef, costs, tables);
  std::vector<PlannedTable> read = decided();
  for (PlannedTable& table : read) {
    table.shard.plan = TablePlan::Auto;
    table.shard.owner = 0;
    table.ids = table.bags = 0;
  }
  const TablePlanFile file = take_table_plan(text, "f", read);
  EXPECT_EQ(file.made_for, 0xabcdefU);
  EXPECT_EQ(file.costs.exchange_us, costs.exchange_us);
  EXPECT_EQ(file.costs.source, costs.source);
  EXPECT_EQ(table_plan_text(file.made_for, file.costs, read), text);
  EXPECT_EQ(read[0].shard.owner, 3);
  EXPECT_TRUE(read[0].shard.all_ids);
}

TEST(TablePlanFileTest, HotRowsAreBehindTheirTable) {
  std::vector<PlannedTable> tables = tables_of(2, {{100, 8}, {2000, 8}});
  for (PlannedTable& table : tables) table.shard.plan = TablePlan::Row;
  tables[1].shard.hot = {0, 17, 1999};
  const std::string text = table_plan_text(1, card_costs("CPU"), tables);
  std::vector<PlannedTable> read = tables_of(2, {{100, 8}, {2000, 8}});
  read[0].shard.hot = {5};
  take_table_plan(text, "f", read);
  EXPECT_TRUE(read[0].shard.hot.empty());
  EXPECT_EQ(read[1].shard.hot, tables[1].shard.hot);
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return message_of([&] { take_table_plan(changed, "f", read); });
  };
  EXPECT_EQ(refusal("1999", "2000"), "f:8: 2000 is no hot row of 't1'");
  EXPECT_EQ(refusal("0 17", "17 0"), "f:8: 0 is no hot row of 't1'");
  EXPECT_EQ(refusal("17", "x"), "f:8: hot rows are numbers");
  EXPECT_EQ(refusal("ROW 0 DISTINCT 1000 0 t1", "TABLE 0 DISTINCT 1000 0 t1"),
            "f:8: not behind the line of a table with plan ROW");
}

TEST(TablePlanFileTest, TextsThatAreNoPlansOfTheseTablesAreRefusedWithTheirLine) {
  const std::string text = table_plan_text(1, card_costs("CPU"), decided());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    std::vector<PlannedTable> tables = decided();
    return message_of([&] { take_table_plan(changed, "f", tables); });
  };
  EXPECT_NE(refusal("plan 1", "plan 2").find("f:1: not a table plan"), std::string::npos);
  EXPECT_NE(refusal("made for 0", "made for x").find("f:2: "), std::string::npos);
  EXPECT_NE(refusal("costs 1", "costs 0").find("f:5: not the costs"), std::string::npos);
  EXPECT_NE(refusal("TABLE 3", "TABLE 4").find("f:6: not the plan of a table"), std::string::npos);
  EXPECT_NE(refusal("TABLE 3", "AUTO 3").find("f:6: not the plan of a table"), std::string::npos);
  EXPECT_NE(refusal(" t0", " other").find("f:6: 'other' is not a table"), std::string::npos);
  EXPECT_NE(refusal("a name/with spaces", "t0").find("f:7: 't0' is not a table"), std::string::npos);
  EXPECT_NE(refusal("table REPLICATE", "tables REPLICATE").find("f:8: "), std::string::npos);
  std::vector<PlannedTable> tables = decided();
  const std::string cut = text.substr(0, text.find("table REPLICATE"));
  EXPECT_NE(message_of([&] { take_table_plan(cut, "f", tables); }).find("'t2' is missing"),
            std::string::npos);
}

TEST(TablePlanFileTest, APlanThatATableCannotHaveIsRefused) {
  const std::string text = table_plan_text(1, card_costs("CPU"), decided());
  const auto refusal = [&](const std::function<void(std::vector<PlannedTable>&)>& change) {
    std::vector<PlannedTable> tables = decided();
    change(tables);
    return message_of([&] { take_table_plan(text, "f", tables); });
  };
  using Tables = std::vector<PlannedTable>;
  EXPECT_EQ(refusal([](Tables& t) { t[0].can_be_sharded = false; }), "f:6: 't0' cannot have this plan");
  EXPECT_EQ(refusal([](Tables& t) { t[0].can_send_all = false; }), "f:6: 't0' cannot have this plan");
  const std::string columns = "f:7: 'a name/with spaces' cannot have this plan";
  EXPECT_EQ(refusal([](Tables& t) { t[1].shard.dim = 6; }), columns);
  EXPECT_EQ(refusal([](Tables& t) { t[1].shard.row_wise = true; }), columns);
}

TEST(TablePlanFileTest, TheKeyIsOfAllThatAPlanIsMadeFrom) {
  proto::Job job = parse_job("strategy { kind: HYBRID }", "test");
  const std::vector<PlannedTable> tables = decided();
  const std::uint64_t key = table_plan_key(job.strategy(), true, "H100", tables);
  EXPECT_EQ(table_plan_key(job.strategy(), true, "H100", decided()), key);
  EXPECT_NE(table_plan_key(job.strategy(), true, "H200", tables), key);
  EXPECT_NE(table_plan_key(job.strategy(), false, "H100", tables), key);
  std::vector<PlannedTable> others = tables;
  for (PlannedTable& table : others) table.shard.world = 5;
  EXPECT_NE(table_plan_key(job.strategy(), true, "H100", others), key);
  others = tables;
  others[1].ids += 1;
  EXPECT_NE(table_plan_key(job.strategy(), true, "H100", others), key);
  job.mutable_strategy()->mutable_hybrid()->set_memory_bytes(1 << 20);
  EXPECT_NE(table_plan_key(job.strategy(), true, "H100", tables), key);
}

}  // namespace
}  // namespace braid::worker
