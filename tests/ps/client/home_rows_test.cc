// Rows whose home a worker is, beside servers that are a map: whatever has room, a step finds the newest
// values of its rows, and in the end the servers have all of them.
#include "ps/client/home_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ps/client/left_rows.h"
#include "ps/client/ordered_keys.h"

namespace braid::ps {
namespace {

constexpr std::size_t kHomeWidth = 3;
constexpr int kHomeServers = 2;
using Key = std::pair<int, std::int64_t>;

struct Batch {
  std::vector<int> tables;
  std::vector<std::int64_t> keys, counts;
  OrderedKeys ordered() const { return {tables, keys.data(), counts}; }
};

Batch ordered(const std::vector<std::vector<std::int64_t>>& ids) {
  std::vector<IdList> lists;
  std::size_t n = 0;
  Batch batch;
  const int tables = static_cast<int>(ids.size());
  for (int t = 0; t < tables; ++t) {
    lists.push_back({t, ids[static_cast<std::size_t>(t)]});
    n += ids[static_cast<std::size_t>(t)].size();
    batch.tables.push_back(t);
  }
  batch.keys.resize(n);
  batch.counts.resize(ids.size() * kHomeServers);
  std::vector<std::int32_t> places(n);
  std::vector<std::int64_t> entries(n),
      scratch(order_scratch_bytes(static_cast<std::int64_t>(n), tables, kHomeServers) / 8 + 1);
  order_keys(lists, tables, kHomeServers,
             {batch.keys.data(), batch.counts.data(), places.data(), entries.data()}, scratch.data());
  return batch;
}

/// The worker's memory and the servers, with one number of each row that counts its uses.
class World {
 public:
  World(std::vector<std::int64_t> slots, std::size_t ids, std::size_t steps, ThreadPool* pool)
      : home_({.tables = numbers(slots.size()),
               .slots = slots,
               .servers = kHomeServers,
               .layout = {.keys = ids, .swaps = ids, .width = kHomeWidth, .steps = steps},
               .pool = pool}),
        memory_(home_.layout().bytes()) {
    home_.set_memory(memory_.data());
    for (const std::int64_t rows : slots)
      variables_.emplace_back(static_cast<std::size_t>(rows) * kHomeWidth, -1.0F);
  }

  HomeRows& home() { return home_; }
  const std::map<Key, float>& servers() const { return servers_; }
  const std::map<Key, std::uint32_t>& last_uses() const { return last_uses_; }

  void plan(std::uint64_t step, const Batch& batch) {
    const OrderedPull pull = home_.plan(step, batch.ordered(), [&](int table, std::int64_t key) {
      return on_the_way_.contains({table, key});
    });
    std::size_t at = 0;
    for (std::size_t c = 0; c < pull.keys.counts.size(); ++c)
      for (std::int64_t i = 0; i < pull.keys.counts[c]; ++i, ++at) {
        const Key key{static_cast<int>(c % variables_.size()), pull.keys.keys[at]};
        ASSERT_FALSE(on_the_way_.contains(key)) << "a row that leaves cannot come at once";
        pull.rows[at * kHomeWidth] = servers_[key];
        pull.rows[at * kHomeWidth + 1] = static_cast<float>(key.second);
      }
    for (const HomeRows::Returning& row : home_.returning(step)) {
      const Left& left = on_the_way_.at({row.table, row.key});
      ASSERT_EQ(left.row.size(), kHomeWidth) << "its step has not swapped";
      EXPECT_GE(row.swap, at) << "what is pulled comes first";
      home_.put_back(step, row.swap, left.row.data());
      ++returned_;
    }
    home_.for_leaving(step, [&](int table, std::int64_t key, std::size_t) {
      on_the_way_[{table, key}] = {step, {}};
    });
  }
  int returned() const { return returned_; }
  /// Whether a step may ask for these already.
  bool can_plan(const Batch& batch) const {
    for (const Key& key : keys(batch))
      if (const auto at = on_the_way_.find(key); at != on_the_way_.end() && at->second.row.empty())
        return false;
    return true;
  }
  std::vector<Key> keys(const Batch& batch) const {
    std::vector<Key> all;
    std::size_t at = 0;
    for (std::size_t c = 0; c < batch.counts.size(); ++c)
      for (std::int64_t i = 0; i < batch.counts[c]; ++i)
        all.emplace_back(static_cast<int>(c % variables_.size()), batch.keys[at++]);
    return all;
  }
  /// What the step does: swaps, uses each row, sends what left.
  void run(std::uint64_t step, const Batch& batch) {
    const HomeBlock block = home_block(home_.layout(), memory_.data(), step);
    for (std::int32_t i = 0; i < block.counts[1]; ++i) {
      const HomeSwap swap = block.swaps[i];
      float* const row = variable(swap.table, swap.slot);
      for (std::size_t k = 0; k < kHomeWidth; ++k) {
        block.out[static_cast<std::size_t>(i) * kHomeWidth + k] = row[k];
        row[k] = block.in[static_cast<std::size_t>(i) * kHomeWidth + k];
      }
    }
    const std::vector<Key> all = keys(batch);
    ASSERT_EQ(static_cast<std::size_t>(block.counts[0]), all.size());
    std::set<std::pair<int, std::int32_t>> slots;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(slots.insert({all[i].first, block.slots[i]}).second) << "two rows in one place";
      float* const row = variable(all[i].first, block.slots[i]);
      ASSERT_EQ(row[0], uses_[all[i]]);
      ASSERT_EQ(row[1], static_cast<float>(all[i].second));
      row[0] += 1;
      ++uses_[all[i]];
    }
    const auto left = home_.leaving(step);
    home_.for_leaving(step, [&](int table, std::int64_t key, std::size_t swap) {
      on_the_way_[{table, key}].row.assign(left->row_of(swap), left->row_of(swap) + kHomeWidth);
    });
    sent_.emplace_back(step, left);
  }
  /// What was sent is with the servers, but for the last `but`.
  void arrive(std::size_t but = 0) {
    for (; sent_.size() > but; sent_.pop_front()) {
      take(*sent_.front().second);
      std::erase_if(on_the_way_, [&](const auto& its) { return its.second.step == sent_.front().first; });
    }
  }
  void flush(std::uint64_t step) {
    arrive();
    const auto dirty = home_.dirty();
    take(*home_.written(dirty, [&](std::int32_t table, std::uint32_t slot, float* out) {
      std::copy_n(variable(table, static_cast<std::int32_t>(slot)), kHomeWidth, out);
    }));
    home_.cleaned(step);
    EXPECT_TRUE(home_.dirty().empty());
    for (const auto& [key, count] : uses_) ASSERT_EQ(servers_[key], count);
  }

 private:
  static std::vector<int> numbers(std::size_t count) {
    std::vector<int> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<int>(i));
    return all;
  }
  float* variable(std::int32_t table, std::int32_t slot) {
    return variables_[static_cast<std::size_t>(table)].data() + static_cast<std::size_t>(slot) * kHomeWidth;
  }
  void take(const HomeRows::Written& rows) {
    std::size_t at = 0;
    for (std::size_t c = 0; c < rows.counts.size(); ++c)
      for (std::int64_t i = 0; i < rows.counts[c]; ++i, ++at) {
        EXPECT_EQ(server_of_hash(key_hash(rows.keys[at]), kHomeServers),
                  static_cast<int>(c / variables_.size()));
        const Key key{static_cast<int>(c % variables_.size()), rows.keys[at]};
        const float* const row = rows.rows.data() + at * (kHomeWidth + 1);
        EXPECT_EQ(row[1], static_cast<float>(key.second));
        servers_[key] = row[0];
        last_uses_[key] = std::bit_cast<std::uint32_t>(row[kHomeWidth]);
      }
  }

  HomeRows home_;
  std::vector<std::byte> memory_;
  std::vector<std::vector<float>> variables_;
  std::map<Key, float> servers_, uses_;
  std::map<Key, std::uint32_t> last_uses_;
  /// The row is empty until that step has swapped.
  struct Left {
    std::uint64_t step = 0;
    std::vector<float> row;
  };
  std::map<Key, Left> on_the_way_;
  std::deque<std::pair<std::uint64_t, std::shared_ptr<HomeRows::Written>>> sent_;
  int returned_ = 0;
};

/// Steps are planned ahead of the one that runs, and what left arrives later.
void expect_newest_rows(std::vector<std::int64_t> slots, int ids, ThreadPool* pool, std::size_t steps_ahead) {
  std::mt19937_64 random(7);
  World world(slots, slots.size() * static_cast<std::size_t>(ids), steps_ahead + 1, pool);
  std::vector<Batch> batches;
  const int steps = 400;
  for (int s = 0; s < steps; ++s) {
    std::vector<std::vector<std::int64_t>> drawn(slots.size());
    for (auto& of : drawn)
      for (int i = 0; i < ids; ++i)
        of.push_back(static_cast<std::int64_t>(random() % 3 == 0 ? random() % 300 : random() % 6));
    batches.push_back(ordered(drawn));
  }
  std::size_t ran = 0;
  for (std::size_t planned = 0; planned < batches.size(); ++planned) {
    if (!world.can_plan(batches[planned]) || random() % 2 == 0)
      for (; ran < planned; ++ran) world.run(ran, batches[ran]);
    world.plan(planned, batches[planned]);
    if (::testing::Test::HasFatalFailure()) return;
    if (planned - ran >= steps_ahead) {
      world.run(ran, batches[ran]);
      ++ran;
    }
    world.arrive(random() % 4);
    if (planned % 97 == 0) {
      for (; ran <= planned; ++ran) world.run(ran, batches[ran]);
      world.flush(planned + 1);
    }
  }
  for (; ran < batches.size(); ++ran) world.run(ran, batches[ran]);
  world.flush(batches.size());
  EXPECT_GT(world.home().counts().evictions, 0U);
  EXPECT_GT(world.home().counts().hits, 0U);
  EXPECT_GT(world.returned(), 0);
  EXPECT_EQ(world.servers().size(), world.last_uses().size());
}

TEST(HomeRowsTest, AStepHasTheNewestValuesOfItsRows) {
  for (const std::int64_t slots : {8, 9, 20, 100}) {
    SCOPED_TRACE(slots);
    expect_newest_rows({slots, slots + 3}, 8, nullptr, 1);
    expect_newest_rows({slots, slots + 3}, 8, nullptr, 3);
  }
  ThreadPool pool(3);
  expect_newest_rows({12, 12, 40}, 12, &pool, 2);
}

TEST(HomeRowsTest, RowsThatWereNotUsedSinceTheServersKnewThemDoNotGoBack) {
  World world({4}, 4, 2, nullptr);
  world.plan(0, ordered({{1, 2, 3, 4}}));
  world.run(0, ordered({{1, 2, 3, 4}}));
  world.flush(1);
  world.plan(1, ordered({{1, 9}}));  // 2 makes room, or another of the old
  int left = 0;
  world.home().for_leaving(1, [&](int, std::int64_t, std::size_t) { ++left; });
  EXPECT_EQ(left, 0);
  EXPECT_EQ(world.home().counts().evictions, 1U);
  world.run(1, ordered({{1, 9}}));
  EXPECT_EQ(world.home().dirty().size(), 2U);
}

TEST(HomeRowsTest, RowsThatAreOnTheirWayAreNotPulled) {
  World world({2}, 2, 2, nullptr);
  world.plan(0, ordered({{1, 2}}));
  world.run(0, ordered({{1, 2}}));
  world.plan(1, ordered({{3, 4}}));
  EXPECT_FALSE(world.can_plan(ordered({{1, 3}}))) << "1 has not left yet";
  world.run(1, ordered({{3, 4}}));
  world.plan(2, ordered({{1, 3}}));
  EXPECT_EQ(world.returned(), 1);
  world.run(2, ordered({{1, 3}}));
  world.plan(3, ordered({{4, 9}}));  // 1 leaves again, before the servers have it from its first time
  world.arrive(2);
  world.run(3, ordered({{4, 9}}));
  world.plan(4, ordered({{1, 9}}));
  world.run(4, ordered({{1, 9}}));
  world.flush(5);
}

TEST(LeftRowsTest, ARowIsFoundByTableAndKey) {
  LeftRows rows;
  EXPECT_TRUE(rows.empty());
  EXPECT_EQ(rows.find(0, 5), std::nullopt);
  for (std::size_t i = 0; i < 1000; ++i)
    rows.add(static_cast<int>(i % 3), static_cast<std::int64_t>(i / 3) * 64, i);
  for (std::size_t i = 0; i < 1000; ++i)
    EXPECT_EQ(rows.find(static_cast<int>(i % 3), static_cast<std::int64_t>(i / 3) * 64), i);
  EXPECT_EQ(rows.find(3, 64), std::nullopt);
  EXPECT_EQ(rows.find(0, 65), std::nullopt);
  EXPECT_FALSE(rows.empty());
}

TEST(HomeRowsTest, RoomIsSharedByWhatAStepMayName) {
  EXPECT_THAT(share_home(100, 4, {1000, 1000}, {10, 30}), ::testing::ElementsAre(25, 75));
  EXPECT_THAT(share_home(100, 4, {5, 1000}, {10, 10}), ::testing::ElementsAre(5, 95));
  EXPECT_THAT(share_home(5000, 4, {5, 1000}, {10, 10}), ::testing::ElementsAre(5, 1000));
  EXPECT_THAT(share_home(15, 4, {5, 1000}, {10, 10}), ::testing::ElementsAre(5, 10));
  try {
    share_home(14, 4, {5, 1000}, {10, 10});
    FAIL() << "a batch needs more";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.message(), ::testing::HasSubstr("a batch may name 15 rows of the tables of 4 numbers"));
  }
}

}  // namespace
}  // namespace braid::ps
