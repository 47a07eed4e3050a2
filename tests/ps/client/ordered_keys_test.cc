#include "ps/client/ordered_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "ps/table_set.h"

namespace braid::ps {
namespace {

struct Ordered {
  std::vector<std::int64_t> keys, counts, entries;
  std::vector<std::int32_t> places;
};

Ordered order(const std::vector<std::pair<int, std::vector<std::int64_t>>>& batch, int tables, int servers,
              bool padded = false) {
  std::vector<IdList> lists;
  std::size_t n = 0;
  for (const auto& [table, ids] : batch) {
    lists.push_back({table, ids, padded});
    n += ids.size();
  }
  Ordered out{std::vector<std::int64_t>(n, -77),
              std::vector<std::int64_t>(static_cast<std::size_t>(tables * servers)),
              std::vector<std::int64_t>(n), std::vector<std::int32_t>(n)};
  const std::size_t bytes = order_scratch_bytes(static_cast<std::int64_t>(n), tables, servers);
  std::vector<std::int64_t> scratch(bytes / 8 + 2, 0x5a5a5a5a5a5a5a5a);
  order_keys(lists, tables, servers,
             {out.keys.data(), out.counts.data(), out.places.data(), out.entries.data()}, scratch.data());
  EXPECT_EQ(scratch[(bytes + 7) / 8], 0x5a5a5a5a5a5a5a5a);
  return out;
}

/// All that is promised, of any batch.
void check(const std::vector<std::pair<int, std::vector<std::int64_t>>>& batch, int tables, int servers) {
  const Ordered got = order(batch, tables, servers);
  std::map<int, std::set<std::int64_t>> distinct;
  std::vector<std::pair<int, std::int64_t>> at;  // by place: table and key
  for (const auto& [table, ids] : batch) distinct[table].insert(ids.begin(), ids.end());
  std::size_t place = 0;
  for (int s = 0; s < servers; ++s)
    for (int t = 0; t < tables; ++t) {
      int bucket = 0;
      for (std::int64_t k = 0; k < got.counts[static_cast<std::size_t>(s * tables + t)]; ++k, ++place) {
        const std::uint64_t hash = key_hash(got.keys[place]);
        EXPECT_EQ(server_of_hash(hash, servers), s);
        EXPECT_GE(bucket_of_hash(hash), bucket) << "keys of a part rise by bucket";
        bucket = bucket_of_hash(hash);
        EXPECT_EQ(distinct[t].erase(got.keys[place]), 1U) << "a key is there, once";
        at.emplace_back(t, got.keys[place]);
      }
    }
  for (const auto& [table, left] : distinct) EXPECT_TRUE(left.empty());
  for (std::size_t i = place; i < got.keys.size(); ++i) EXPECT_EQ(got.keys[i], 0);
  std::size_t position = 0;
  for (const auto& [table, ids] : batch)
    for (const std::int64_t id : ids) {
      const auto its = static_cast<std::size_t>(got.places[position++]);
      ASSERT_LT(its, at.size());
      EXPECT_EQ(at[its], std::pair(table, id));
    }
  EXPECT_TRUE(std::is_sorted(got.entries.begin(), got.entries.end()));
  for (const std::int64_t entry : got.entries)
    EXPECT_EQ(entry >> 32, got.places[static_cast<std::size_t>(entry & 0xffffffff)]);
}

TEST(OrderedKeysTest, EveryKeyStandsOnceWithItsServerTableAndBucket) {
  std::mt19937_64 random(3);
  for (const int servers : {1, 2, 3, 7})
    for (const std::int64_t space : {1, 40, 5000, 1 << 30}) {
      std::vector<std::pair<int, std::vector<std::int64_t>>> batch;
      for (const auto& [table, count] :
           std::vector<std::pair<int, int>>{{0, 700}, {0, 1}, {1, 0}, {2, 333}, {3, 64}}) {
        std::vector<std::int64_t> ids;
        for (int i = 0; i < count; ++i)
          ids.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(space)) - space / 2);
        batch.emplace_back(table, std::move(ids));
      }
      check(batch, 4, servers);
    }
}

TEST(OrderedKeysTest, AllAlikeAllDifferentAndNone) {
  check({{0, std::vector<std::int64_t>(100, -1)}}, 1, 2);
  std::vector<std::int64_t> different(1000);
  for (std::size_t i = 0; i < different.size(); ++i) different[i] = static_cast<std::int64_t>(i) << 40;
  check({{0, different}, {1, different}}, 2, 3);
  check({{0, {}}}, 1, 2);
}

TEST(OrderedKeysTest, NegativeIdsOfPaddedListsAreNone) {
  std::mt19937_64 random(5);
  for (const int share : {0, 1, 2, 5}) {  // of ids that are there, of 5
    std::vector<std::pair<int, std::vector<std::int64_t>>> padded{{0, {}}, {0, {}}, {1, {}}}, kept = padded;
    std::vector<bool> is_there;
    for (std::size_t list = 0; list < padded.size(); ++list)
      for (int i = 0; i < 50; ++i) {
        const auto id = static_cast<std::int64_t>(random() % 20);
        is_there.push_back(static_cast<int>(random() % 5) < share);
        padded[list].second.push_back(is_there.back() ? id : -1);
        if (is_there.back()) kept[list].second.push_back(id);
      }
    const Ordered got = order(padded, 2, 3, true), expected = order(kept, 2, 3);
    EXPECT_EQ(got.counts, expected.counts);
    const auto count = static_cast<std::ptrdiff_t>(expected.keys.size());
    EXPECT_TRUE(std::equal(expected.keys.begin(), expected.keys.end(), got.keys.begin()));
    std::vector<std::int32_t> places;
    for (std::size_t p = 0; p < is_there.size(); ++p) {
      if (is_there[p])
        places.push_back(got.places[p]);
      else
        EXPECT_EQ(got.places[p], 0);
    }
    EXPECT_EQ(places, expected.places);
    EXPECT_TRUE(std::is_sorted(got.entries.begin(), got.entries.begin() + count));
    for (std::ptrdiff_t e = 0; e < count; ++e) {
      const auto position = static_cast<std::size_t>(got.entries[static_cast<std::size_t>(e)] & 0xffffffff);
      EXPECT_TRUE(is_there[position]);
      EXPECT_EQ(got.entries[static_cast<std::size_t>(e)] >> 32, got.places[position]);
    }
    for (auto e = got.entries.begin() + count; e != got.entries.end(); ++e) EXPECT_EQ(*e, -1);
  }
}

TEST(OrderedKeysTest, AThreadsBucketsAreARange) {
  for (int threads = 1; threads <= kKeyBuckets; ++threads) {
    ASSERT_EQ(first_bucket_of(0, threads), 0);
    ASSERT_EQ(first_bucket_of(threads, threads), kKeyBuckets);
    for (int bucket = 0; bucket < kKeyBuckets; ++bucket) {
      const int thread = thread_of_hash(static_cast<std::uint64_t>(bucket) << 56, threads);
      ASSERT_GE(bucket, first_bucket_of(thread, threads));
      ASSERT_LT(bucket, first_bucket_of(thread + 1, threads));
    }
  }
}

}  // namespace
}  // namespace braid::ps
