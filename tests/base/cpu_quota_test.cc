#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/cpu.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

class CpuQuotaTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_.path() / file).parent_path());
    std::ofstream(root_.path() / file) << text << "\n";
  }
  double of(const std::string& groups) const { return cpu_quota(groups, root_.path()); }

  const TempDir root_;
};

TEST_F(CpuQuotaTest, IsTheLeastOfTheGroupAndThoseThatItIsIn) {
  write("cpu.max", "max 100000");
  write("system.slice/cpu.max", "300000 100000");
  write("system.slice/job.scope/cpu.max", "50000 100000");
  write("user.slice/cpu.max", "1000 100000");
  EXPECT_EQ(of("0::/system.slice/job.scope\n"), 0.5);
  EXPECT_EQ(of("0::/system.slice/other.scope\n"), 3);
  EXPECT_TRUE(std::isinf(of("0::/other.slice\n")));
}

TEST_F(CpuQuotaTest, OfVersionOneTheCpuControllerCounts) {
  write("cpu/jobs/mine/cpu.cfs_quota_us", "150000");
  write("cpu/jobs/mine/cpu.cfs_period_us", "100000");
  write("cpu/jobs/cpu.cfs_quota_us", "-1");
  write("cpu/jobs/cpu.cfs_period_us", "100000");
  EXPECT_EQ(of("5:cpu,cpuacct:/jobs/mine\n0::/\n"), 1.5);
  EXPECT_TRUE(std::isinf(of("5:cpu,cpuacct:/jobs\n4:cpuset:/jobs/mine\n")));
}

TEST_F(CpuQuotaTest, InAContainerItsRootCountsWhateverPathItIsTold) {
  write("cpu/cpu.cfs_quota_us", "200000");
  write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(of("5:cpu,cpuacct:/docker/0123456789abcdef\n"), 2);
  write("cpu.max", "100000 100000");
  EXPECT_EQ(of(""), 1);
}

TEST_F(CpuQuotaTest, WhatIsNoQuotaLimitsNothing) {
  write("cpu.max", "lots of them");
  EXPECT_TRUE(std::isinf(of("0::/\n")));
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace braid
