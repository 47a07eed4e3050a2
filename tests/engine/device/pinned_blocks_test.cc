#include "engine/device/pinned_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace braid {
namespace {

TEST(PinnedBlocksTest, OnlyWhatLiesInOneBlockIsPinned) {
  std::array<std::byte, 400> memory{};
  PinnedBlocks blocks;
  blocks.add(memory.data() + 100, 100);
  blocks.add(memory.data() + 200, 100);
  EXPECT_FALSE(blocks.contains(memory.data(), 10));
  EXPECT_FALSE(blocks.contains(memory.data() + 99, 10));
  EXPECT_TRUE(blocks.contains(memory.data() + 100, 100));
  EXPECT_TRUE(blocks.contains(memory.data() + 150, 50));
  EXPECT_FALSE(blocks.contains(memory.data() + 150, 51)) << "it ends in the next block";
  EXPECT_TRUE(blocks.contains(memory.data() + 299, 1));
  EXPECT_FALSE(blocks.contains(memory.data() + 300, 1));
  EXPECT_FALSE(blocks.contains(memory.data() + 250, UINT64_MAX)) << "no sum that wraps around";
  blocks.remove(memory.data() + 100);
  EXPECT_FALSE(blocks.contains(memory.data() + 100, 1));
  EXPECT_TRUE(blocks.contains(memory.data() + 200, 1));
}

}  // namespace
}  // namespace braid
