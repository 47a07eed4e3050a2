// Generated code is made once, kept in files that are whole or not used, and never waited for without a
// limit.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "engine/device/kernel_cache.h"

namespace braid {
namespace {

using namespace std::chrono_literals;

class KernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("braid_kernel_cache_" + std::to_string(::getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  KernelCache cache(const std::string& setting = "sm_90") {
    return {folder_, setting, [](const std::string& source) { return "code of " + source; }};
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  static std::string code(KernelCache& cache, const std::string& source) {
    std::string why;
    const auto made = cache.get(std::vector{source}, 2, 10s, why);
    EXPECT_EQ(why, "");
    return made[0] ? *made[0] : "";
  }

  std::filesystem::path folder_;
};

TEST_F(KernelCacheTest, AnotherProcessReadsWhatOneHasMade) {
  KernelCache first = cache(), second = cache(), other = cache("sm_100");
  EXPECT_EQ(code(first, "a"), "code of a");
  EXPECT_EQ(code(first, "a"), "code of a");
  EXPECT_EQ(first.compiled(), 1);
  EXPECT_EQ(code(second, "a"), "code of a");
  EXPECT_EQ(second.compiled(), 0);
  EXPECT_EQ(second.loaded(), 1);
  EXPECT_EQ(code(other, "a"), "code of a");
  EXPECT_EQ(other.compiled(), 1) << "another architecture";
}

TEST_F(KernelCacheTest, ADamagedFileIsMadeAnew) {
  {
    KernelCache first = cache();
    code(first, "a");
  }
  ASSERT_EQ(files().size(), 1U);
  const std::string whole = read_file(files()[0]);
  for (std::size_t damage = 0; damage < whole.size(); damage += 3) {
    std::string content = whole;
    content[damage] = static_cast<char>(content[damage] ^ 0x20);
    std::ofstream(files()[0], std::ios::binary) << content;
    KernelCache second = cache();
    EXPECT_EQ(code(second, "a"), "code of a");
    EXPECT_EQ(second.compiled(), 1) << "byte " << damage;
    std::ofstream(files()[0], std::ios::binary) << whole.substr(0, damage);
    KernelCache third = cache();
    EXPECT_EQ(code(third, "a"), "code of a");
    EXPECT_EQ(third.compiled(), 1) << "cut at " << damage;
  }
}

TEST_F(KernelCacheTest, WritersAtTheSameTimeLeaveWholeFiles) {
  std::vector<std::string> sources;
  for (int i = 0; i < 40; ++i)
    sources.push_back(std::string(static_cast<std::size_t>(i * 100), 'x') + std::to_string(i));
  std::vector<std::thread> writers;
  for (int w = 0; w < 6; ++w)
    writers.emplace_back([&] {
      KernelCache own = cache();
      std::string why;
      const auto made = own.get(sources, 3, 60s, why);
      for (std::size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(*made[i], "code of " + sources[i]);
    });
  for (std::thread& writer : writers) writer.join();
  KernelCache reader = cache();
  std::string why;
  reader.get(sources, 2, 60s, why);
  EXPECT_EQ(reader.loaded(), 40);
  EXPECT_EQ(files().size(), 40U) << "no temporary file is left";
}

TEST_F(KernelCacheTest, WhatFailsOrTakesTooLongIsNullAndSaysWhy) {
  KernelCache failing(folder_, "", [](const std::string& source) -> std::string {
    if (source == "bad") throw Internal("no such thing");
    if (source == "slow") std::this_thread::sleep_for(300ms);
    return source;
  });
  std::string why;
  auto made = failing.get(std::vector<std::string>{"good", "bad"}, 2, 10s, why);
  EXPECT_TRUE(made[0] && !made[1]);
  EXPECT_NE(why.find("no such thing"), std::string::npos);
  why.clear();
  EXPECT_FALSE(failing.get(std::vector<std::string>{"slow"}, 1, 1ms, why)[0]);
  EXPECT_EQ(why, "it took too long");
  why.clear();
  EXPECT_TRUE(failing.get(std::vector<std::string>{"slow"}, 1, 10s, why)[0]) << "it went on";
}

TEST_F(KernelCacheTest, WithoutAFolderKernelsAreKeptInTheProcess) {
  std::ofstream(folder_) << "a file where the folder should be";
  KernelCache unwritable = cache();
  EXPECT_EQ(code(unwritable, "a"), "code of a");
  KernelCache none({}, "", [](const std::string& source) { return source; });
  EXPECT_EQ(code(none, "b"), "b");
}

}  // namespace
}  // namespace braid
