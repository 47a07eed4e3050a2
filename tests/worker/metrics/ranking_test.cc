// Measures of an order against counting pairs and rows, whatever the order of the rows.
#include "worker/metrics/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace braid::worker {
namespace {

double auc_by_pairs(const RankedRows& rows) {
  double good = 0, pairs = 0;
  for (std::size_t i = 0; i < rows.scores.size(); ++i)
    for (std::size_t j = 0; j < rows.scores.size(); ++j) {
      if (rows.labels[i] == 0 || rows.labels[j] != 0) continue;
      const double weight = rows.weight(i) * rows.weight(j);
      pairs += weight;
      good += weight * (rows.scores[i] > rows.scores[j] ? 1.0 : rows.scores[i] == rows.scores[j] ? 0.5 : 0.0);
    }
  return good / pairs;
}

RankedRows some_rows(int count, bool weighted) {
  std::mt19937 random(3);
  RankedRows rows;
  for (int i = 0; i < count; ++i) {
    rows.scores.push_back(static_cast<float>(random() % 20));
    rows.labels.push_back(random() % 3 == 0 ? 1 : 0);
    rows.groups.push_back(static_cast<std::int64_t>(random() % 11) - 5);
    if (weighted) rows.weights.push_back(static_cast<float>(random() % 4));
  }
  return rows;
}

RankedRows shuffled(const RankedRows& rows) {
  std::vector<std::size_t> order(rows.scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  RankedRows other;
  for (const std::size_t row : order) {
    other.scores.push_back(rows.scores[row]);
    other.labels.push_back(rows.labels[row]);
    other.groups.push_back(rows.groups[row]);
    if (!rows.weights.empty()) other.weights.push_back(rows.weights[row]);
  }
  return other;
}

TEST(RankingTest, AucIsTheShareOfOrderedPairsTiesIncluded) {
  for (const bool weighted : {false, true}) {
    const RankedRows rows = some_rows(400, weighted);
    EXPECT_NEAR(auc(rows, ranked_order(rows, false)), auc_by_pairs(rows), 1e-12);
  }
}

TEST(RankingTest, NoMeasureDependsOnTheOrderOfTheRows) {
  for (const bool weighted : {false, true}) {
    const RankedRows rows = some_rows(300, weighted), other = shuffled(rows);
    const auto order = ranked_order(rows, false), other_order = ranked_order(other, false);
    const auto grouped = ranked_order(rows, true), other_grouped = ranked_order(other, true);
    EXPECT_DOUBLE_EQ(auc(rows, order), auc(other, other_order));
    EXPECT_NEAR(average_precision(rows, order), average_precision(other, other_order), 1e-14);
    EXPECT_NEAR(group_auc(rows, grouped), group_auc(other, other_grouped), 1e-14);
    for (const std::int64_t k : {1, 3, 50}) {
      EXPECT_NEAR(precision_at(k, rows, grouped), precision_at(k, other, other_grouped), 1e-14);
      EXPECT_NEAR(recall_at(k, rows, grouped), recall_at(k, other, other_grouped), 1e-14);
      EXPECT_NEAR(ndcg_at(k, rows, grouped), ndcg_at(k, other, other_grouped), 1e-14);
    }
  }
}

TEST(RankingTest, GroupsOfOneClassCountNothing) {
  RankedRows rows;
  rows.scores = {1, 2, 3, 1, 2, 9};
  rows.labels = {0, 0, 1, 1, 0, 1};
  rows.groups = {7, 7, 7, 8, 8, 9};  // AUC 1 of three rows, 0 of two; the last has one class
  EXPECT_DOUBLE_EQ(group_auc(rows, ranked_order(rows, true)), 3.0 / 5);
  rows.groups = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(std::isnan(group_auc(rows, ranked_order(rows, true))));
}

TEST(RankingTest, ATieAtTheBorderCountsItsShare) {
  RankedRows rows;
  rows.scores = {5, 4, 4, 4, 1};
  rows.labels = {1, 1, 0, 0, 1};
  const auto order = ranked_order(rows, true);
  EXPECT_DOUBLE_EQ(precision_at(2, rows, order), (1 + 1.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(recall_at(2, rows, order), (1 + 1.0 / 3) / 3);
  EXPECT_DOUBLE_EQ(precision_at(10, rows, order), 0.3) << "fewer rows than k";
}

}  // namespace
}  // namespace braid::worker
