// One-pass statistics against sums that are made the long way.
#include "engine/input/schema/value_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/init.h"

namespace braid {
namespace {

TEST(MomentsTest, AgreeWithTheFormulasOverAllValues) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(1e6 + std::exp(0.01 * i));
  Moments moments;
  double sum = 0;
  for (const double value : values) {
    moments.add(value);
    sum += value;
  }
  const double mean = sum / 1000;
  double second = 0, third = 0;
  for (const double value : values) {
    second += (value - mean) * (value - mean) / 1000;
    third += (value - mean) * (value - mean) * (value - mean) / 1000;
  }
  EXPECT_NEAR(moments.mean(), mean, 1e-9 * mean);
  EXPECT_NEAR(moments.deviation(), std::sqrt(second), 1e-9 * std::sqrt(second));
  EXPECT_NEAR(moments.skewness(), third / std::pow(second, 1.5), 1e-6);
}

TEST(MomentsTest, OfNoValueAndOfEqualValuesAreZero) {
  Moments moments;
  EXPECT_EQ(moments.deviation(), 0);
  for (int i = 0; i < 3; ++i) moments.add(5);
  EXPECT_EQ(moments.mean(), 5);
  EXPECT_EQ(moments.deviation(), 0);
  EXPECT_EQ(moments.skewness(), 0);
}

TEST(DistinctCounterTest, IsExactForFewAndNearForMany) {
  DistinctCounter few, many;
  for (int repeat = 0; repeat < 2; ++repeat)
    for (int i = 0; i < 200000; ++i) {
      if (i < static_cast<int>(DistinctCounter::kExact)) few.add(stable_hash(std::to_string(i)));
      many.add(stable_hash(std::to_string(i)));
    }
  EXPECT_TRUE(few.exact());
  EXPECT_EQ(few.count(), static_cast<std::int64_t>(DistinctCounter::kExact));
  EXPECT_FALSE(many.exact());
  EXPECT_NEAR(static_cast<double>(many.count()), 200000, 0.08 * 200000) << "five standard errors";
}

TEST(WordCounterTest, CountsFewWordsAndGivesUpOnMany) {
  WordCounter words;
  for (const char* word : {"yes", "no", "no"}) words.add(word);
  EXPECT_EQ(words.counts().at("no"), 2);
  for (std::size_t i = 0; i < WordCounter::kMost; ++i) words.add(std::to_string(i));
  EXPECT_TRUE(words.counts().empty());
}

TEST(QuantileSketchTest, IsExactOfFewValuesAndCloseOfMany) {
  QuantileSketch few, many;
  EXPECT_TRUE(std::isnan(few.at(0.5)));
  for (int i = 1000; i >= 0; --i) few.add(i);
  EXPECT_EQ(few.at(0), 0);
  EXPECT_EQ(few.at(0.25), 250);
  EXPECT_EQ(few.at(1), 1000);
  constexpr std::int64_t kValues = 1'000'003;
  for (std::int64_t i = 0; i < kValues; ++i) many.add(static_cast<double>(i * 7919 % kValues));
  EXPECT_EQ(many.count(), kValues);
  for (const double share : {0.01, 0.25, 0.5, 0.75, 0.99}) EXPECT_NEAR(many.at(share) / kValues, share, 0.01);
}

}  // namespace
}  // namespace braid
