// Generated rows: what the seed and the row's number say, and labels that can be learnt.
#include "engine/input/generators/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/expect_error.h"

namespace braid {
namespace {

using testing::HasSubstr;

GeneratorOptions options() {
  GeneratorOptions options;
  options.columns = {
      {.name = "x", .kind = ColumnKind::Numeric, .length = 3},
      {.name = "c", .kind = ColumnKind::Categorical, .buckets = 50},
      {.name = "tags", .kind = ColumnKind::Categorical, .buckets = 20, .length = 4, .output = "tags"},
      {.name = "word", .kind = ColumnKind::Categorical, .vocabulary = {"a", "b", "c"}},
      {.name = "y", .kind = ColumnKind::Label},
      {.name = "class", .kind = ColumnKind::Class, .buckets = 4, .output = "class"}};
  options.rows = 2000;
  options.seed = 9;
  return options;
}

template <class T>
std::vector<T> values(const Table& table, const char* name) {
  const auto span = table.find(name)->data.data<T>();
  return {span.begin(), span.end()};
}

TEST(GeneratorTest, ARowIsAFunctionOfSeedAndNumber) {
  const auto whole = generate_rows(options());
  GeneratorOptions part = options();
  part.first_row = 1500;
  part.rows = 500;
  const auto tail = generate_rows(part);
  const auto all = values<float>(*whole, "dense"), last = values<float>(*tail, "dense");
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - static_cast<std::ptrdiff_t>(last.size())));
  const auto ids = values<std::int64_t>(*whole, "tags"), last_ids = values<std::int64_t>(*tail, "tags");
  EXPECT_TRUE(
      std::equal(last_ids.begin(), last_ids.end(), ids.end() - static_cast<std::ptrdiff_t>(last_ids.size())));
  part = options();
  part.seed = 10;
  EXPECT_NE(values<float>(*generate_rows(part), "dense"), all);
}

TEST(GeneratorTest, ValuesAreWithinTheSchema) {
  const auto table = generate_rows(options());
  EXPECT_EQ(table->find("dense")->data.shape(), (Shape{2000, 3}));
  double sum = 0, squares = 0;
  for (const float x : values<float>(*table, "dense")) {
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 6000, 0, 0.1);
  EXPECT_NEAR(squares / 6000, 1, 0.1);
  const auto sparse = values<std::int64_t>(*table, "sparse");
  for (std::size_t i = 0; i < sparse.size(); i += 2) {
    EXPECT_TRUE(sparse[i] >= 0 && sparse[i] < 50);
    EXPECT_TRUE(sparse[i + 1] >= 0 && sparse[i + 1] < 3);
  }
  for (const std::int64_t tag : values<std::int64_t>(*table, "tags")) EXPECT_TRUE(tag >= 1 && tag <= 20);
  std::array<int, 4> classes{};
  for (const std::int64_t c : values<std::int64_t>(*table, "class")) ++classes[static_cast<std::size_t>(c)];
  for (const int count : classes) EXPECT_GT(count, 20);
}

TEST(GeneratorTest, TheClassOrdersTheLabels) {
  // Both follow the hidden score: the higher class has the larger share of positive labels.
  const auto table = generate_rows(options());
  const auto labels = values<float>(*table, "label");
  const auto classes = values<std::int64_t>(*table, "class");
  std::array<double, 4> positive{}, rows{};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    positive[static_cast<std::size_t>(classes[i])] += labels[i];
    rows[static_cast<std::size_t>(classes[i])] += 1;
  }
  for (std::size_t c = 0; c + 1 < 4; ++c)
    EXPECT_LT(positive[c] / rows[c] + 0.05, positive[c + 1] / rows[c + 1]);
}

TEST(GeneratorTest, WhatCannotBeMadeIsRefused) {
  GeneratorOptions none = options();
  none.rows = 0;
  EXPECT_ERROR(generate_rows(none), InvalidArgument, HasSubstr("rows must be at least 1"));
  GeneratorOptions classes = options();
  classes.columns.back().buckets = 0;
  EXPECT_ERROR(generate_rows(classes), InvalidArgument,
               HasSubstr("'class': the generator needs a vocabulary or buckets"));
}

}  // namespace
}  // namespace braid
