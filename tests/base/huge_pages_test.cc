#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace braid {
namespace {

TEST(HugePagesTest, ABlockLiesOnABorderAndHasAllItsBytes) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kPage, kPage + 1, kLargeBlockBytes}) {
    const std::unique_ptr<void, void (*)(void*)> block(allocate_huge_pages(bytes), std::free);
    ASSERT_NE(block, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % kPage, 0U) << bytes;
    std::memset(block.get(), 7, bytes);
  }
}

TEST(HugePagesTest, WhatNoMachineHasIsNull) {
  EXPECT_EQ(allocate_huge_pages(SIZE_MAX), nullptr);
  EXPECT_EQ(allocate_huge_pages(std::size_t{1} << 60), nullptr);
}

}  // namespace
}  // namespace braid
