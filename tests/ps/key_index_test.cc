#include "ps/table/key_index.h"

#include <gtest/gtest.h>

#include <limits>
#include <unordered_map>

#include "base/init.h"
#include "ps/table_set.h"

namespace braid::ps {
namespace {

std::uint32_t insert(KeyIndex& index, std::int64_t key, bool* made) {
  return index.find_or_insert(key, key_hash(key), static_cast<std::uint32_t>(index.size()), made);
}

TEST(KeyIndexTest, EveryInt64IsAKey) {
  KeyIndex index;
  const std::int64_t keys[] = {0, -1, 1, std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t key : keys) {
    EXPECT_EQ(index.find(key, key_hash(key)), KeyIndex::kNone);
    bool made = false;
    const std::uint32_t row = insert(index, key, &made);
    EXPECT_TRUE(made);
    EXPECT_EQ(insert(index, key, &made), row);
    EXPECT_FALSE(made);
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
    bool made = false;
    const std::uint32_t row = insert(index, key, &made);
    const auto [at, fresh] = truth.emplace(key, row);
    ASSERT_EQ(made, fresh);
    ASSERT_EQ(at->second, row);
  }
  ASSERT_EQ(index.size(), truth.size());
  for (const auto& [key, row] : truth) ASSERT_EQ(index.find(key, key_hash(key)), row);
  for (std::int64_t key = 5000000; key < 5001000; ++key)
    ASSERT_EQ(index.find(key, key_hash(key)), KeyIndex::kNone);
}

}  // namespace
}  // namespace braid::ps
