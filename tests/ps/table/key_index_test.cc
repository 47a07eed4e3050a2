#include "ps/table/key_index.h"

#include <gtest/gtest.h>

#include <limits>
#include <unordered_map>

#include "base/init.h"
#include "ps/table_set.h"

namespace braid::ps {
namespace {

void insert(KeyIndex& index, std::int64_t key) {
  index.insert(key, key_hash(key), static_cast<std::uint32_t>(index.size()), static_cast<std::uint32_t>(key));
}

TEST(KeyIndexTest, EveryInt64IsAKey) {
  KeyIndex index;
  const std::int64_t keys[] = {0, -1, 1, std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t key : keys) {
    EXPECT_EQ(index.find(key, key_hash(key)), KeyIndex::kNone);
    insert(index, key);
    EXPECT_EQ(index.find(key, key_hash(key)), index.size() - 1);
  }
  EXPECT_EQ(index.size(), 5U);
}

TEST(KeyIndexTest, AgreesWithAMapWhileItGrows) {
  KeyIndex index;
  std::unordered_map<std::int64_t, std::uint32_t> truth;
  std::vector<std::uint32_t> bits(200000);
  fill_bits(make_rng_key(3, "keys"), 0, bits);
  for (std::uint32_t random : bits) {
    const auto key = static_cast<std::int64_t>(random % 90000) * (random & 1 ? -1 : 0x100000001LL);
    const auto [at, fresh] = truth.emplace(key, static_cast<std::uint32_t>(index.size()));
    ASSERT_EQ(index.find(key, key_hash(key)), fresh ? KeyIndex::kNone : at->second);
    if (fresh) insert(index, key);
  }
  ASSERT_EQ(index.size(), truth.size());
  for (const auto& [key, row] : truth) {
    const auto first = static_cast<std::uint32_t>(key), next = row + 1;
    std::uint32_t before = 0;
    ASSERT_EQ(index.stamp(key, key_hash(key)), first);
    ASSERT_EQ(index.find_and_stamp(key, key_hash(key), next, &before), row);
    ASSERT_EQ(before, first);
    const bool is_ahead = static_cast<std::int32_t>(next - first) > 0;  // a stamp never goes back
    ASSERT_EQ(index.stamp(key, key_hash(key)), is_ahead ? next : first);
  }
  for (std::int64_t key = 5000000; key < 5001000; ++key)
    ASSERT_EQ(index.find(key, key_hash(key)), KeyIndex::kNone);
}

}  // namespace
}  // namespace braid::ps
