#include "engine/device/kept_choices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"

namespace braid {
namespace {

TEST(KeptChoicesTest, TheFirstChoiceStaysInTheProcessAndOnDisk) {
  const TempDir folder;
  KeptChoices one(folder.path());
  EXPECT_EQ(one.get("a product", 3, [] { return 2; }), 2);
  EXPECT_EQ(one.get("a product", 3, [] { return 1; }), 2);
  EXPECT_EQ(one.get("another", 3, [] { return 1; }), 1);
  KeptChoices later(folder.path());
  EXPECT_EQ(later.get("a product", 3, []() -> int { throw std::logic_error("measured again"); }), 2);
}

TEST(KeptChoicesTest, WhoMeasuresSecondTakesWhatIsThere) {
  const TempDir folder;
  KeptChoices one(folder.path()), other(folder.path());
  const int second = other.get("a product", 4, [&] {
    EXPECT_EQ(one.get("a product", 4, [] { return 3; }), 3);  // another process is faster
    return 1;
  });
  EXPECT_EQ(second, 3);
}

TEST(KeptChoicesTest, WhatIsNoChoiceIsMeasuredAnewAndReplaced) {
  const TempDir folder;
  EXPECT_EQ(KeptChoices(folder.path()).get("a product", 9, [] { return 8; }), 8);
  EXPECT_EQ(KeptChoices(folder.path()).get("a product", 4, [] { return 1; }), 1);  // 8 is none of four
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    std::ofstream(file.path()) << "a product\n1x\n";
  EXPECT_EQ(KeptChoices(folder.path()).get("a product", 4, [] { return 2; }), 2);
  EXPECT_EQ(KeptChoices(folder.path()).get("a product", 4, [] { return 0; }), 2);
}

TEST(KeptChoicesTest, AMeasurementThatFailsKeepsNothing) {
  KeptChoices choices({});
  EXPECT_THROW(choices.get("a product", 2, []() -> int { throw std::runtime_error("no memory"); }),
               std::runtime_error);
  EXPECT_EQ(choices.get("a product", 2, [] { return 1; }), 1);
}

TEST(KeptChoicesTest, WithoutAFolderChoicesStayInTheProcess) {
  KeptChoices choices("/proc/nowhere/choices");
  EXPECT_EQ(choices.get("a product", 2, [] { return 1; }), 1);
  EXPECT_EQ(choices.get("a product", 2, [] { return 0; }), 1);
}

TEST(KeptChoicesTest, OneOfManyThreadsMeasures) {
  KeptChoices choices({});
  std::atomic<int> measured = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] { EXPECT_EQ(choices.get("a product", 2, [&] { return measured++; }), 0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(measured, 1);
}

}  // namespace
}  // namespace braid
