#include "worker/quality.h"

#include <gtest/gtest.h>

#include <random>

namespace braid::worker {
namespace {

TEST(AccuracyTest, CountsRowsWhoseLargestLogitIsTheLabel) {
  Accuracy accuracy;
  const std::vector<float> logits{0.1F, 0.9F, 0.0F, 5.0F, 1.0F, 2.0F};
  const std::vector<std::int64_t> labels{1, 2};
  accuracy.add(logits, labels);
  EXPECT_DOUBLE_EQ(accuracy.value(), 0.5);
  accuracy.add({}, {});
  EXPECT_DOUBLE_EQ(accuracy.value(), 0.5);
}

double auc_by_pairs(const std::vector<float>& scores, const std::vector<float>& labels) {
  double good = 0, pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] < 0.5F || labels[j] > 0.5F) continue;
      pairs += 1;
      good += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
    }
  return good / pairs;
}

TEST(AucTest, EqualsTheShareOfOrderedPairsTiesIncluded) {
  std::mt19937 random(3);
  std::vector<float> scores, labels;
  for (int i = 0; i < 400; ++i) {
    scores.push_back(static_cast<float>(random() % 20));
    labels.push_back(random() % 3 == 0 ? 1.0F : 0.0F);
  }
  Auc auc;
  auc.add(std::span(scores).first(100), std::span(labels).first(100));
  auc.add(std::span(scores).subspan(100), std::span(labels).subspan(100));
  EXPECT_NEAR(auc.value(), auc_by_pairs(scores, labels), 1e-12);
}

TEST(AucTest, OneClassIsHalf) {
  Auc auc;
  auc.add(std::vector<float>{1, 2}, std::vector<float>{1, 1});
  EXPECT_DOUBLE_EQ(auc.value(), 0.5);
}

}  // namespace
}  // namespace braid::worker
