// Ranks of a real mpirun become tasks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/missing.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace braid::launch {
namespace {

using ::testing::UnorderedElementsAre;

/// The lines that `processes` ranks of print_cluster write under mpirun.
std::vector<std::string> lines_under_mpirun(int processes, const std::string& arguments,
                                            const std::string& environment = "") {
  const std::string command = environment + " timeout 100 mpirun --allow-run-as-root --oversubscribe -np " +
                              std::to_string(processes) + " " + BRAID_PRINT_CLUSTER + " " + arguments;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 256> line;
  std::vector<std::string> lines;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    lines.emplace_back(line.data());
    lines.back().pop_back();
  }
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return lines;
}

class MpirunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << missing::kMpirun;
  }
};

TEST_F(MpirunTest, LastRanksBecomeServers) {
  EXPECT_THAT(lines_under_mpirun(3, "--ps-ranks 1"),
              UnorderedElementsAre("0 worker 0 3", "1 worker 1 3", "- ps 0 3"));
}

TEST_F(MpirunTest, RanksTakeTheTasksOfTfConfig) {
  EXPECT_THAT(lines_under_mpirun(
                  3, "", R"(TF_CONFIG='{"cluster": {"ps": ["a:1"], "worker": ["a:2"], "chief": ["a:3"]}}')"),
              UnorderedElementsAre("0 chief 0 3", "1 worker 0 3", "- ps 0 3"));
}

}  // namespace
}  // namespace braid::launch
