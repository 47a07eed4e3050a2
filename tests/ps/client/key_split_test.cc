#include "ps/client/key_split.h"

#include <gtest/gtest.h>

#include "ps/table_set.h"

namespace braid::ps {
namespace {

TEST(KeySplitTest, OneServerWithoutRepetitionsSendsTheCallersArrays) {
  const std::vector<std::int64_t> keys{5, -7, 0, 9};
  EXPECT_TRUE(split_keys(keys, 1, false).as_given);
  EXPECT_TRUE(split_keys({}, 1, false).as_given);
}

TEST(KeySplitTest, EveryKeyTravelsOnceToItsServer) {
  std::vector<std::int64_t> keys;
  for (std::int64_t i = 0; i < 500; ++i) keys.push_back(i % 120 - 60);
  for (int servers : {1, 2, 3}) {
    const KeySplit split = split_keys(keys, servers, false);
    ASSERT_FALSE(split.as_given);
    std::vector<std::int64_t> rebuilt(keys.size(), 1 << 30);
    std::size_t travelling = 0;
    for (int s = 0; s < servers; ++s) {
      const auto& part = split.parts[static_cast<std::size_t>(s)];
      travelling += part.keys.size();
      ASSERT_EQ(part.keys.size(), part.positions.size());
      for (std::size_t i = 0; i < part.keys.size(); ++i) {
        EXPECT_EQ(server_of_hash(key_hash(part.keys[i]), servers), s);
        rebuilt[part.positions[i]] = part.keys[i];
      }
      for (const auto& [position, row] : part.repeats) rebuilt[position] = part.keys[row];
    }
    EXPECT_EQ(travelling, 120U);
    EXPECT_EQ(rebuilt, keys);
  }
}

}  // namespace
}  // namespace braid::ps
