#include "engine/exec/copy_list.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "engine/ir/tensor.h"

namespace braid {
namespace {

constexpr std::uint64_t kSlack = 64;

/// Float32 values at `offset` of a block that several tensors share.
Tensor part_of(const std::shared_ptr<std::byte[]>& block, std::size_t offset, std::int64_t count) {
  return {DType::Float32, Shape({count}), std::shared_ptr<std::byte[]>(block, block.get() + offset),
          Domain::Host};
}

class CopyListTest : public ::testing::Test {
 protected:
  std::shared_ptr<std::byte[]> block_{new std::byte[1024]};
  std::array<std::byte, 1024> device_{};
  CopyList list_{kSlack};
};

TEST_F(CopyListTest, NeighboursOfOneBlockAreOneCopyWithThePaddingBetweenThem) {
  const Tensor a = part_of(block_, 0, 4), b = part_of(block_, 64, 8);
  list_.add(device_.data() + 128, a);
  list_.add(device_.data() + 192, b);
  ASSERT_EQ(list_.copies().size(), 1U);
  EXPECT_EQ(list_.copies()[0].to, device_.data() + 128);
  EXPECT_EQ(list_.copies()[0].from, a.raw());
  EXPECT_EQ(list_.copies()[0].bytes, 64U + 32U);
}

TEST_F(CopyListTest, OtherDistancesOtherBlocksAndLargeGapsAreCopiesOfTheirOwn) {
  const std::shared_ptr<std::byte[]> other(new std::byte[1024]);
  const Tensor a = part_of(block_, 0, 4);
  for (const Tensor& b : {part_of(block_, 96, 4), part_of(other, 64, 4)}) {
    list_.clear();
    list_.add(device_.data(), a);
    list_.add(device_.data() + 64, b);
    EXPECT_EQ(list_.copies().size(), 2U);
  }
  list_.clear();
  list_.add(device_.data(), a);
  const Tensor far = part_of(block_, 16 + kSlack, 4);
  list_.add(device_.data() + 16 + kSlack, far);
  EXPECT_EQ(list_.copies().size(), 2U);
}

TEST_F(CopyListTest, WhatIsNoTensorsEndsTheNeighbourhood) {
  const Tensor a = part_of(block_, 0, 16), b = part_of(block_, 64, 16);
  std::array<std::byte, 8> image{};
  list_.add(device_.data(), a);
  list_.add({device_.data() + 512, image.data(), image.size()});
  list_.add({device_.data() + 520, image.data(), 0});
  list_.add(device_.data() + 64, b);
  EXPECT_EQ(list_.copies().size(), 3U);
}

}  // namespace
}  // namespace braid
