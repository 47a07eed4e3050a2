// Hot rows beside plan ROW: the bits of plans without them, and which rows they are.
#include "worker/strategies/hot_rows.h"

#include <gtest/gtest.h>

#include "engine/import/import.h"
#include "engine/ops/common/index_groups.h"
#include "tests/worker/strategies/hybrid_runs.h"

namespace braid::worker {
namespace {

class HotRowsTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { register_strategy_ops(); }
};

TEST_P(HotRowsTest, HaveTheBitsOfPlansWithoutThem) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(400 + world));
  std::int64_t hot = 0;
  int dense = 0, in_lists = 0;
  for (int trial = 0; trial < 8; ++trial) {
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const std::string optimizer = std::vector<std::string>{
        "SGD", "ADAGRAD", "ADAM", "ADAGRAD row_wise: true"}[static_cast<std::size_t>(draw(random, 0, 3))];
    SCOPED_TRACE("trial " + std::to_string(trial) + " " + optimizer);
    const Outcome rows =
        run_group(model, job_of(optimizer, "HYBRID", all_tables("ROW")), world, batches, random);
    for (const std::string& plan : {all_tables("ROW", "hot_rows: 1"), all_tables("ROW", "hot_rows: 7"),
                                    all_tables("ROW", "hot_rows: 1000"),
                                    "table { match: 't1' plan: ROW hot_rows: 3 } " + all_tables("TABLE"),
                                    "ids: ALL " + all_tables("ROW", "hot_rows: 5")}) {
      const Outcome its = run_group(model, job_of(optimizer, "HYBRID", plan), world, batches, random);
      ASSERT_EQ(its.losses, rows.losses) << plan;
      ASSERT_EQ(its.tables, rows.tables) << plan;
      hot += its.hot_rows;
      dense += its.sums_hot_densely ? 1 : 0;
      in_lists += its.hot_rows > 0 && !its.sums_hot_densely ? 1 : 0;
    }
  }
  EXPECT_TRUE(hot > 50 || world == 1) << hot;
  EXPECT_EQ(dense > 5, world > 2) << dense;
  EXPECT_TRUE(in_lists > 5 || world != 2) << in_lists;
}

INSTANTIATE_TEST_SUITE_P(Ranks, HotRowsTest, ::testing::Values(1, 2, 3, 4, 8));

TableShard two_ranks(std::int64_t rows, std::int64_t hot_rows) {
  TableShard table;
  table.name = "t1";
  table.rows = rows;
  table.dim = 2;
  table.world = 2;
  table.hot_rows = hot_rows;
  return table;
}

using Ids = std::vector<std::int64_t>;

Ids chosen(const Graph& graph, const TableShard& table, const BatchValues& values) {
  std::vector<PlannedTable> tables(2);
  tables[0].shard = table;
  tables[1].shard = table;
  tables[1].shard.hot_rows = 0;
  choose_hot_rows(graph, values, tables);
  EXPECT_TRUE(tables[1].shard.hot.empty());
  return tables[0].shard.hot;
}

TEST(ChooseHotRowsTest, TakesThoseThatTheFirstBatchesNameMost) {
  register_strategy_ops();
  Random random(1);
  Model model = random_model(random, 2);
  const Graph graph = import_graph(model.graph, "model");
  std::uint64_t asked = 0;
  const BatchValues values = [&](const Graph&, const std::vector<std::string>& names, std::uint64_t batches) {
    asked = batches;
    std::vector<std::vector<Tensor>> all(2);
    for (std::size_t i = 0; i < 2 * names.size(); ++i)
      all[i / names.size()].push_back(Tensor::from<std::int64_t>({2, 4}, Ids{7, 3, 3, 7, 7, -1, 1, 900}));
    return all;
  };
  EXPECT_EQ(chosen(graph, two_ranks(100, 2), values), (Ids{3, 7}));
  EXPECT_EQ(chosen(graph, two_ranks(100, 1), values), (Ids{7}));
  EXPECT_EQ(chosen(graph, two_ranks(100, 50), values), (Ids{1, 3, 7}));
  EXPECT_EQ(chosen(graph, two_ranks(1000, 4), values), (Ids{1, 3, 7, 900}));
  EXPECT_GT(asked, 1U);
  EXPECT_EQ(chosen(graph, two_ranks(100, 3), {}), (Ids{0, 1, 2}));
}

TEST(HotTableTest, SaysWhereRowsAre) {
  TableShard table = two_ranks(100, 3);
  table.hot = {4, 9, 77};
  table.slots = {"m"};
  EXPECT_EQ(table.hot_place(9), 1);
  EXPECT_EQ(table.hot_place(10), -1);
  EXPECT_EQ(table.hot_place(99), -1);
  EXPECT_EQ(hot_variable(table, "t1/m"), "t1/hot/m");
  const TableShard hot = hot_table(table);
  EXPECT_EQ(hot.name, "t1/hot");
  EXPECT_EQ(hot.local_rows(), 3);
  EXPECT_FALSE(hot.sharded());
  EXPECT_EQ(table.local_bytes(), (50 + 3) * 2 * 2 * 4);
  table.plan = TablePlan::Table;
  EXPECT_EQ(table.most_hot(), 0);
}

}  // namespace
}  // namespace braid::worker
