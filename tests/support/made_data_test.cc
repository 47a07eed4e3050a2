// Made data: the same bytes for the same seed, and the layout that the readers take for the public data
// sets'.
#include "tests/support/made_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/files.h"
#include "engine/input/formats/readers.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

constexpr RowCounts kFew{400, 100};

TEST(MadeDataTest, FollowsFromTheSeed) {
  const TempDir dir;
  for (const auto& [name, seed] : {std::pair{"a", 1}, {"b", 1}, {"c", 2}}) {
    write_census(dir.path() / name, kFew, static_cast<std::uint64_t>(seed));
    write_images(dir.path() / name, kFew, static_cast<std::uint64_t>(seed));
  }
  for (const char* file :
       {"adult.data", "adult.test", "train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}) {
    EXPECT_TRUE(read_file(dir.path() / "a" / file) == read_file(dir.path() / "b" / file)) << file;
    EXPECT_FALSE(read_file(dir.path() / "a" / file) == read_file(dir.path() / "c" / file)) << file;
  }
}

TEST(MadeDataTest, CensusRowsHaveTheColumnsAndTheDirtOfAdult) {
  const TempDir dir;
  write_census(dir.path(), kFew);
  CsvOptions csv;
  csv.comment = "|";
  for (int c = 0; c < 14; ++c)
    csv.columns.push_back({.name = "c" + std::to_string(c), .kind = ColumnKind::Skip});
  csv.columns[0].kind = ColumnKind::Numeric;
  csv.columns.push_back({.name = "income", .kind = ColumnKind::Label, .positive = ">50K"});
  for (const auto& [name, rows] : {std::pair{"adult.data", kFew.train}, {"adult.test", kFew.test}}) {
    const auto table = read_csv({dir.path() / name}, csv);
    ASSERT_EQ(table->rows, rows) << name;
    double positive = 0;
    for (const float label : table->find("label")->data.data<float>()) positive += label / rows;
    EXPECT_GT(positive, 0.2) << name;
    EXPECT_LT(positive, 0.6) << name;
  }
  const std::string test = read_file(dir.path() / "adult.test");
  EXPECT_TRUE(test.starts_with("|1x3 Cross validator\n"));
  EXPECT_THAT(test, ::testing::HasSubstr(", >50K.\n"));
  EXPECT_THAT(test, ::testing::HasSubstr(", ?, "));
}

TEST(MadeDataTest, ImagesOfAllClassesAreRead) {
  const TempDir dir;
  write_images(dir.path(), kFew);
  const auto table =
      read_idx(dir.path() / "train-images-idx3-ubyte.gz", dir.path() / "train-labels-idx1-ubyte.gz");
  ASSERT_EQ(table->rows, kFew.train);
  const auto labels = table->find("label")->data.data<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(labels.begin(), labels.end()).size(), 10U);
}

}  // namespace
}  // namespace braid
