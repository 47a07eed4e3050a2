#include "ps/shard_plan.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace braid::ps {
namespace {

TableSet set_of(const std::vector<std::int64_t>& sizes) {
  TableSet set;
  for (std::size_t i = 0; i < sizes.size(); ++i) set.dense.push_back({"t" + std::to_string(i), sizes[i]});
  return set;
}

void expect_whole(const TableSet& set, const ShardPlan& plan) {
  for (int t = 0; t < static_cast<int>(set.dense.size()); ++t) {
    std::int64_t at = 0;
    std::vector<bool> seen(static_cast<std::size_t>(plan.servers()));
    for (const DenseRange& range : plan.ranges(t)) {
      EXPECT_EQ(range.begin, at);
      EXPECT_GE(range.count, 1);
      EXPECT_FALSE(seen[static_cast<std::size_t>(range.server)]) << "two ranges of a table on one server";
      seen[static_cast<std::size_t>(range.server)] = true;
      at += range.count;
    }
    EXPECT_EQ(at, set.dense[static_cast<std::size_t>(t)].elements);
  }
}

TEST(ShardPlanTest, RangesCoverEveryTableOnce) {
  for (int servers : {1, 2, 3, 5, 7}) {
    const TableSet set = set_of({1, 10, 4096, 100000, 3, 12345, 7, 1 << 20, 2});
    expect_whole(set, ShardPlan(set, servers));
  }
}

TEST(ShardPlanTest, LoadIsBalancedWithinFivePercent) {
  const std::vector<std::vector<std::int64_t>> models = {
      {784 * 300, 300, 300 * 100, 100, 100 * 10, 10},                           // a small perceptron
      {5 * 5 * 1 * 32, 32, 5 * 5 * 32 * 64, 64, 3136 * 1024, 1024, 10240, 10},  // a small CNN
      {73'000'000, 2'900, 400, 4000},                                           // one giant
      {1000},
      std::vector<std::int64_t>(300, 17),
  };
  for (const auto& model : models)
    for (int servers : {2, 3, 4, 8}) EXPECT_LE(ShardPlan(set_of(model), servers).imbalance(), 1.05);
}

TEST(ShardPlanTest, FewElementsAreOneApart) {
  const ShardPlan plan(set_of({1, 1, 1}), 2);
  EXPECT_EQ(plan.load(0) + plan.load(1), 3);
  EXPECT_LE(std::max(plan.load(0), plan.load(1)), 2);
}

TEST(TableSetTest, HashSeesEveryField) {
  TableSet set = set_of({10, 20});
  set.sparse.push_back({"e", 8, {InitKind::Uniform, -1, 1}, {42}});
  const std::uint64_t base = table_set_hash(set);
  EXPECT_EQ(table_set_hash(TableSet(set)), base);
  auto changed = [&](auto change) {
    TableSet other = set;
    change(other);
    return table_set_hash(other);
  };
  EXPECT_NE(changed([](TableSet& s) { s.dense[0].name = "x"; }), base);
  EXPECT_NE(changed([](TableSet& s) { s.dense[1].elements = 21; }), base);
  EXPECT_NE(changed([](TableSet& s) { s.sparse[0].key.value = 43; }), base);
  EXPECT_NE(changed([](TableSet& s) { s.sparse[0].init.b = 2; }), base);
  EXPECT_NE(changed([](TableSet& s) { s.optimizer.beta2 = 0.99F; }), base);
  EXPECT_NE(changed([](TableSet& s) { s.workers = 2; }), base);
  EXPECT_NE(changed([](TableSet& s) { s.consistency = Consistency::Asp; }), base);
}

TEST(TableSetTest, RefusesWhatCannotBe) {
  auto message = [](const TableSet& set) { return message_of([&] { check_table_set(set); }); };
  EXPECT_EQ(message(set_of({1})), "nothing was thrown");
  EXPECT_EQ(message(set_of({0})), "[ps] table 't0': elements must be >= 1, got 0");
  TableSet set = set_of({1, 1});
  set.dense[1].name = "t0";
  EXPECT_EQ(message(set), "[ps] two tables are named 't0'");
  set = set_of({1});
  set.consistency = Consistency::Ssp;
  set.staleness = 0;
  EXPECT_EQ(message(set), "[ps] SSP with a staleness of 0 is BSP");
  set.consistency = Consistency::Timed;
  set.timed.quorum = 2;
  EXPECT_EQ(message(set), "[ps] TIMED: a quorum of 2 workers of 1");
}

}  // namespace
}  // namespace braid::ps
