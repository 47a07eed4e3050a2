// Cutting a line of nodes into stages, against all cuts there are.
#include "worker/strategies/pipeline_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace braid::worker {
namespace {

TEST(PipelineLineTest, EqualNodesAreSharedEqually) {
  LineOfNodes line(12);
  for (std::size_t i = 0; i < 12; ++i) line.add_cost(i, 1);
  EXPECT_EQ(line.cut(4, 1), (std::vector<std::size_t>{3, 6, 9, 12}));
  EXPECT_EQ(line.cut(1, 1), (std::vector<std::size_t>{12}));
  EXPECT_EQ(line.cut(12, 1).size(), 12u);
  EXPECT_TRUE(line.cut(13, 1).empty());
}

TEST(PipelineLineTest, NothingIsCutBetweenNodesThatStayTogether) {
  LineOfNodes line(6);
  for (std::size_t i = 0; i < 6; ++i) line.add_cost(i, 1);
  line.keep_together(1, 4);
  EXPECT_EQ(line.cut(2, 1), (std::vector<std::size_t>{1, 6}));
  line.keep_together(5, 0);
  EXPECT_TRUE(line.cut(2, 1).empty());
}

TEST(PipelineLineTest, WhatIsSentCounts) {
  LineOfNodes line(4);
  for (std::size_t i = 0; i < 4; ++i) line.add_cost(i, 1);
  line.add_value({7, 0}, 1, 2, 100);  // crosses the middle
  EXPECT_NE(line.cut(2, 1)[0], 2u);
  EXPECT_EQ(line.cut(2, 1000)[0], 2u);
}

TEST(PipelineLineTest, BesideALongStageTheOthersAreShared) {
  LineOfNodes line(7);
  line.add_cost(0, 100);
  for (std::size_t i = 1; i < 7; ++i) line.add_cost(i, 1);
  EXPECT_EQ(line.cut(3, 1), (std::vector<std::size_t>{1, 4, 7}));
}

TEST(PipelineLineTest, TheLongestStageIsAsShortAsItCanBe) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t n = 3 + random() % 7;
    const int stages = 2 + static_cast<int>(random() % 2);
    LineOfNodes line(n);
    std::vector<double> costs(n), sent(n + 1);
    for (std::size_t i = 0; i < n; ++i) line.add_cost(i, costs[i] = static_cast<double>(random() % 20));
    for (NodeId v = 0; v < 4; ++v) {
      const std::size_t made = random() % (n - 1), read = made + 1 + random() % (n - 1 - made);
      const auto bytes = static_cast<double>(random() % 10);
      line.add_value({v, 0}, made, read, bytes);
      for (std::size_t cut = made + 1; cut <= read; ++cut) sent[cut] += bytes;
    }
    const auto longest = [&](const std::vector<std::size_t>& ends) {
      double most = 0;
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        double own = (begin > 0 ? sent[begin] : 0) + (end < n ? sent[end] : 0);
        for (std::size_t i = begin; i < end; ++i) own += costs[i];
        most = std::max(most, own);
        begin = end;
      }
      return most;
    };
    double best = 1e18;
    const std::function<void(std::vector<std::size_t>)> all = [&](std::vector<std::size_t> ends) {
      if (std::ssize(ends) == stages - 1) {
        ends.push_back(n);
        best = std::min(best, longest(ends));
        return;
      }
      for (std::size_t next = ends.empty() ? 1 : ends.back() + 1; next < n; ++next) {
        auto more = ends;
        more.push_back(next);
        all(more);
      }
    };
    all({});
    const auto found = line.cut(stages, 1);
    ASSERT_EQ(std::ssize(found), stages);
    EXPECT_DOUBLE_EQ(longest(found), best);
  }
}

}  // namespace
}  // namespace braid::worker
