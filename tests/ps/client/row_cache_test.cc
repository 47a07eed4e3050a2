// A worker's copies of rows against the servers' rows, which another worker changes too: whatever is kept,
// and however work is divided, a step's rows have the bits of the servers'.
#include "ps/client/row_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ps/client/ordered_keys.h"

namespace braid::ps {
namespace {

constexpr std::int64_t kDim = 5;
constexpr int kTables = 3, kServers = 2;

OptimizerSpec adagrad() {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::Adagrad;
  return spec;
}

/// What servers have of two workers' rows, of whom 0 has a cache.
class Rows {
 public:
  struct Row {
    std::vector<float> values;  // and slots
    std::uint64_t round = 0;
    int writer = -1;  // -2: both
  };
  Row& at(int table, std::int64_t key) {
    const auto [place, is_new] = rows_.try_emplace({table, key});
    if (is_new)
      for (std::int64_t i = 0; i < 2 * kDim; ++i)
        place->second.values.push_back(i < kDim ? static_cast<float>(key % 97 + table) : 0.1F);
    return place->second;
  }
  /// Of one worker, whose gradients of a round are the first or come behind the other's.
  void change(int table, std::int64_t key, int worker, std::uint64_t round, const float* gradient) {
    Row& row = at(table, key);
    const UpdateParams params{0.1F, 1.0F, round};
    update_table_row(prepare_update(adagrad(), params), row.values.data(),
                     {gradient, static_cast<std::size_t>(kDim)});
    row.writer = row.round == round && row.writer >= 0 && row.writer != worker ? -2 : worker;
    row.round = round;
  }

 private:
  std::map<std::pair<int, std::int64_t>, Row> rows_;
};

struct Step {
  std::vector<int> tables{0, 1, 2};
  std::vector<std::int64_t> keys, counts;
  std::vector<float> rows, gradients;

  OrderedKeys ordered() const { return {tables, keys.data(), counts}; }
  template <class Use>
  void each(Use use) const {
    std::size_t at = 0;
    for (std::size_t c = 0; c < counts.size(); ++c)
      for (std::int64_t i = 0; i < counts[c]; ++i, ++at) use(at, static_cast<int>(c) % kTables, keys[at]);
  }
};

Step drawn_step(std::mt19937_64& random, int ids, std::int64_t table_rows) {
  std::vector<std::vector<std::int64_t>> drawn(kTables);
  std::vector<IdList> lists;
  for (int t = 0; t < kTables; ++t) {
    for (int i = 0; i < ids; ++i)
      drawn[static_cast<std::size_t>(t)].push_back(static_cast<std::int64_t>(
          random() % 2 == 0 ? random() % 50 : random() % static_cast<std::uint64_t>(table_rows)));
    lists.push_back({t, drawn[static_cast<std::size_t>(t)]});
  }
  const std::int64_t n = std::int64_t{kTables} * ids;
  Step step;
  step.keys.resize(static_cast<std::size_t>(n));
  step.counts.resize(kTables * kServers);
  std::vector<std::int64_t> entries(step.keys.size());
  std::vector<std::int32_t> places(step.keys.size());
  std::vector<std::byte> scratch(order_scratch_bytes(n, kTables, kServers));
  order_keys(lists, kTables, kServers, {step.keys.data(), step.counts.data(), places.data(), entries.data()},
             scratch.data());
  std::int64_t distinct = 0;
  for (const std::int64_t count : step.counts) distinct += count;
  step.rows.assign(static_cast<std::size_t>(distinct * kDim), -1.0F);
  for (std::size_t i = 0; i < step.rows.size(); ++i)
    step.gradients.push_back(static_cast<float>(random() % 100) / 50 - 1);
  return step;
}

struct Sizes {
  std::int64_t cache_rows, table_rows;
  int ids, threads;
};

class RowCacheTest : public ::testing::TestWithParam<Sizes> {
 protected:
  /// The answer of servers that have made all rounds before the step's.
  static void answer(Rows& servers, const Step& step, RowCache::Round& round, std::uint64_t& sent) {
    round.changed.servers.assign(1, {});
    step.each([&](std::size_t at, int table, std::int64_t key) {
      const Rows::Row& row = servers.at(table, key);
      const std::uint32_t known = round.known[at];
      if (known != 0 && row.writer == 0 && row.round == known - 1) return;
      round.changed.servers[0].rows.push_back({static_cast<std::uint32_t>(at), row.values.data()});
      ++sent;
    });
  }
};

TEST_P(RowCacheTest, StepsHaveTheRowsOfTheServers) {
  const Sizes sizes = GetParam();
  ThreadPool pool(sizes.threads);
  RowCache cache({std::vector<OptimizerSpec>(kTables, adagrad()), kDim, sizes.cache_rows,
                  kTables * sizes.table_rows, std::nullopt, sizes.threads > 1 ? &pool : nullptr});
  std::mt19937_64 random(static_cast<std::uint64_t>(sizes.cache_rows + sizes.threads));
  Rows servers;
  Step before;
  std::uint64_t sent = 0, named = 0;
  for (std::uint64_t t = 0; t < 60; ++t) {
    Step step = drawn_step(random, sizes.ids, sizes.table_rows);
    const bool uses = random() % 5 != 0;
    if (uses) cache.plan(t, step.ordered());  // ahead of the update of the step before
    RowCache::Round* const round = cache.round(t);
    ASSERT_EQ(round != nullptr, uses);
    int turns = 0;
    if (uses) cache.when_turn(*round, [&] { ++turns; });
    const UpdateParams params{0.1F, 1.0F, t - 1};
    if (t > 0) cache.update(t - 1, before.ordered(), params, before.gradients.data());
    if (uses) {
      ASSERT_EQ(turns, 1);
      answer(servers, step, *round, sent);
      cache.gather(*round, step.rows.data());
      cache.land(*round, step.rows.data());
      named += step.rows.size() / kDim;
      step.each([&](std::size_t at, int table, std::int64_t key) {
        for (std::size_t i = 0; i < kDim; ++i)
          ASSERT_EQ(step.rows[at * kDim + i], servers.at(table, key).values[i])
              << "step " << t << ", table " << table << ", key " << key;
      });
    }
    step.each([&](std::size_t at, int table, std::int64_t key) {
      servers.change(table, key, 0, t, step.gradients.data() + at * kDim);
      if (key % 7 == 0) servers.change(table, key, 1, t, step.gradients.data());
    });
    before = std::move(step);
  }
  const CacheCounts counts = cache.counts();
  EXPECT_EQ(counts.hits + counts.misses, named);
  EXPECT_EQ(counts.misses + counts.repairs, sent);
  EXPECT_GT(counts.hits, named / 10);
  EXPECT_LT(sent, named);
  if (sizes.cache_rows >= kTables * sizes.table_rows) {
    EXPECT_EQ(counts.evictions, 0U);
    EXPECT_EQ(counts.uncached, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RowCacheTest,
                         ::testing::Values(Sizes{300, 400, 90, 1}, Sizes{1200, 400, 90, 1},
                                           Sizes{1200, 400, 90, 3}, Sizes{9000, 20000, 1500, 1},
                                           Sizes{9000, 20000, 1500, 3}, Sizes{70000, 30000, 1500, 3},
                                           Sizes{30000, 10000, 2000, 4}));

TEST(RowCacheTest, AStepThatDoesNotUseItIsNotItsConcern) {
  RowCache cache({{adagrad()}, kDim, 10, 100, std::nullopt, nullptr});
  const std::vector<int> tables{0};
  const std::vector<std::int64_t> keys{4, 9}, counts{2};
  const std::vector<float> gradients(2 * kDim, 1.0F);
  EXPECT_EQ(cache.round(0), nullptr);
  cache.update(0, {tables, keys.data(), counts}, {0.1F, 1.0F, 0}, gradients.data());
  cache.plan(3, {tables, keys.data(), counts});
  EXPECT_EQ(cache.round(2), nullptr);
  cache.update(2, {tables, keys.data(), counts}, {0.1F, 1.0F, 2}, gradients.data());
  EXPECT_NE(cache.round(3), nullptr) << "it is still under way";
  cache.update(3, {tables, keys.data(), counts}, {0.1F, 1.0F, 3}, gradients.data());
  EXPECT_EQ(cache.round(3), nullptr);
}

}  // namespace
}  // namespace braid::ps
