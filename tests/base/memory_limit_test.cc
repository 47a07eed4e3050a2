#include "base/memory_limit.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace braid {
namespace {

class MemoryLimitTest : public ::testing::Test {
 protected:
  void limit(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_.path() / file).parent_path());
    std::ofstream(root_.path() / file) << text << "\n";
  }
  std::uint64_t of(const std::string& groups) const { return memory_limit(groups, root_.path()); }

  const TempDir root_;
};

TEST_F(MemoryLimitTest, IsTheLeastOfTheGroupAndThoseThatItIsIn) {
  limit("memory.max", "max");
  limit("system.slice/memory.max", "4000");
  limit("system.slice/job.scope/memory.max", "9000");
  limit("user.slice/memory.max", "7");
  EXPECT_EQ(of("0::/system.slice/job.scope\n"), 4000U);
  limit("system.slice/job.scope/memory.max", "300");
  EXPECT_EQ(of("0::/system.slice/job.scope\n"), 300U);
  EXPECT_EQ(of("0::/system.slice/job.scope"), 300U);
  EXPECT_EQ(of("0::/other.slice\n"), UINT64_MAX);
}

TEST_F(MemoryLimitTest, OfVersionOneTheMemoryControllerCounts) {
  limit("memory/jobs/mine/memory.limit_in_bytes", "500");
  limit("cpu/jobs/mine/memory.limit_in_bytes", "1");
  EXPECT_EQ(of("5:cpu,cpuacct:/jobs/mine\n4:hugetlb,memory:/jobs/mine\n0::/\n"), 500U);
  EXPECT_EQ(of("4:memory:/jobs/other\n"), UINT64_MAX);
}

TEST_F(MemoryLimitTest, InAContainerItsRootCountsWhateverPathItIsTold) {
  limit("memory/memory.limit_in_bytes", "600");
  EXPECT_EQ(of("4:memory:/docker/0123456789abcdef\n"), 600U);
  limit("memory.max", "200");
  EXPECT_EQ(of(""), 200U);
  EXPECT_EQ(of("no line of this kind\n"), 200U);
}

TEST_F(MemoryLimitTest, NothingThereIsNoLimit) {
  EXPECT_EQ(of("0::/\n"), UINT64_MAX);
  EXPECT_GT(usable_memory(), 0U);
}

}  // namespace
}  // namespace braid
