// What single columns are made of: buckets of numbers, parts of times, crosses, fields that several columns
// read, and words that share a table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/formats/readers.h"
#include "engine/input/schema/schema.h"
#include "engine/input/schema/time_parts.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kCategory = ColumnKind::Categorical;

std::vector<std::int64_t> ids(const Table& table) {
  const auto data = table.find("sparse")->data.data<std::int64_t>();
  return {data.begin(), data.end()};
}

/// The ids of one column of these texts.
std::vector<std::int64_t> ids_of_texts(const ColumnSpec& column, const std::vector<std::string>& texts) {
  TableBuilder builder({column});
  for (const std::string& text : texts) {
    EXPECT_THAT(builder.add_text(0, text), IsEmpty());
    builder.end_row();
  }
  return ids(*builder.finish(0));
}

TEST(BucketsTest, AFloatHasTheBucketOfItsText) {
  const ColumnSpec share{.name = "share", .kind = kCategory, .borders = {0.1, 0.3, 0.7}};
  const std::vector<float> values{0.1F, 0.3F, 0.7F};
  EXPECT_THAT(ids_of_texts(share, {"0.1", "0.3", "0.7", "0.69999"}), ElementsAre(1, 2, 3, 2));
  TableBuilder floats({share});
  for (const float& value : values) {
    ASSERT_EQ(floats.add_values(0, {.floats = std::span(&value, 1)}), "");
    floats.end_row();
  }
  EXPECT_THAT(ids(*floats.finish(0)), ElementsAre(1, 2, 3));
  const ColumnSpec large{.name = "large", .kind = kCategory, .borders = {16777217}};
  EXPECT_THAT(ids_of_texts(large, {"16777216", "16777217"}), ElementsAre(0, 1)) << "whole beyond floats";
}

TEST(BucketsTest, AnIdIsHowManyBordersAreNotAboveTheNumber) {
  const ColumnSpec age{.name = "age", .kind = kCategory, .borders = {18, 30.5, 65}};
  EXPECT_EQ(age.ids(), 5);
  EXPECT_THAT(ids_of_texts(age, {"-1", "17.9", "18", "30.5", "64", "65", "1e9", "", "?"}),
              ElementsAre(0, 0, 1, 2, 2, 3, 3, 4, 4));
  TableBuilder builder({age});
  EXPECT_THAT(builder.add_text(0, "old"), HasSubstr("'old' is not a number"));
  builder.drop_row();
  const std::vector<float> number{31.0F}, nothing{NAN};
  const std::vector<std::int64_t> integer{18};
  EXPECT_THAT(builder.add_values(0, {.floats = number}), IsEmpty());
  EXPECT_THAT(builder.add_values(0, {.floats = nothing}), IsEmpty());
  EXPECT_THAT(builder.add_values(0, {.ints = integer}), IsEmpty());
  EXPECT_THAT(builder.add_values(0, {}), IsEmpty());
  for (int i = 0; i < 4; ++i) builder.end_row();
  EXPECT_THAT(ids(*builder.finish(0)), ElementsAre(2, 4, 1, 4));
}

TEST(BucketsTest, BordersRise) {
  for (const std::vector<double>& borders : {std::vector<double>{1, 1}, {2, 1}, {0, INFINITY}})
    EXPECT_ERROR((TableBuilder({{.name = "x", .kind = kCategory, .borders = borders}})), InvalidArgument,
                 HasSubstr("borders must be finite and rise"));
}

TEST(TimeTest, TextsAndNumbersAreSecondsSince1970) {
  const double noon = 1772366400;  // 2026-03-01 12:00:00
  for (const char* text :
       {"2026-03-01T12:00:00Z", "2026-03-01 12:00", "2026-03-01T13:30:00+01:30", "2026-03-01 04:00:00-0800",
        "1772366400", "1772366400000", "1772366400000000", "1772366400000000000", "1.7723664e9"})
    EXPECT_DOUBLE_EQ(seconds_of_text(text).value_or(-1), noon) << text;
  EXPECT_DOUBLE_EQ(seconds_of_text("2026-03-01T12:00:00.25Z").value_or(-1), noon + 0.25);
  EXPECT_DOUBLE_EQ(seconds_of_text("1969-12-31").value_or(-1), -86400);
  for (const char* text :
       {"", "2026-02-30", "2026-03-01T", "2026-03-01T25:00", "2026-03-01 12:00 noon", "01.03.2026", "nan"})
    EXPECT_FALSE(seconds_of_text(text)) << text;
}

TEST(TimeTest, PartsBeginAtMondayJanuaryAndTheFirst) {
  const double noon = 1772366400 + 34 * 60 + 5;
  EXPECT_EQ(part_of_time(TimePart::Minute, noon), 34);
  EXPECT_EQ(part_of_time(TimePart::Hour, noon), 12);
  EXPECT_EQ(part_of_time(TimePart::Weekday, noon), 6) << "a Sunday";
  EXPECT_EQ(part_of_time(TimePart::MonthDay, noon), 0);
  EXPECT_EQ(part_of_time(TimePart::Month, noon), 2);
  EXPECT_EQ(part_of_time(TimePart::YearDay, noon), 59);
  EXPECT_EQ(part_of_time(TimePart::Hour, -1), 23);
  EXPECT_EQ(part_of_time(TimePart::Weekday, -1), 2) << "the last of 1969 was a Wednesday";
}

TEST(TimeTest, ColumnsHaveAnIdForEachPartAndOneForWhatIsMissing) {
  const ColumnSpec hour{.name = "hour", .kind = kCategory, .time_part = TimePart::Hour};
  EXPECT_EQ(hour.ids(), 25);
  EXPECT_THAT(ids_of_texts(hour, {"2026-03-01T07:59:00", "", "0"}), ElementsAre(7, 24, 0));
  TableBuilder builder({hour});
  EXPECT_THAT(builder.add_text(0, "noon"), HasSubstr("'noon' is not a time"));
  TableBuilder seconds({{.name = "t",
                         .kind = ColumnKind::Numeric,
                         .shift = 100,
                         .scale = 10,
                         .time_part = TimePart::Seconds}});
  EXPECT_THAT(seconds.add_text(0, "1970-01-01 00:02"), IsEmpty());
  seconds.end_row();
  EXPECT_EQ(seconds.finish(0)->columns[0].data.data<float>()[0], 2.0F);
  EXPECT_ERROR((TableBuilder({{.name = "t", .kind = ColumnKind::Numeric, .time_part = TimePart::Hour}})),
               InvalidArgument, HasSubstr("time_part is SECONDS"));
}

/// docs/user/data.md has this formula.
std::int64_t crossed(const std::string& name, const std::vector<std::string>& parts, std::uint64_t buckets) {
  std::uint64_t hash = stable_hash(name + "=");
  for (const std::string& part : parts) {
    hash = (hash ^ stable_hash(part)) * 0xBF58476D1CE4E5B9ULL;
    hash ^= hash >> 31;
  }
  return static_cast<std::int64_t>(hash % buckets);
}

std::vector<ColumnSpec> crossed_columns() {
  return {{.name = "city", .kind = kCategory, .vocabulary = {"Rome"}},
          {.name = "age", .kind = kCategory, .borders = {30}},
          {.name = "site", .kind = kCategory, .buckets = 9},
          {.name = "all", .kind = kCategory, .buckets = 1000, .cross = {"city", "age", "site"}}};
}

TEST(CrossTest, IsTheHashOfThePairsOfValues) {
  const TempDir dir;
  std::ofstream(dir.path() / "a.csv") << "age,site,city\n25,x,Rome\n35,x,Rome\n,,Rome\n";
  const auto table = read_csv({dir.path() / "a.csv"}, {.header = true, .columns = crossed_columns()});
  ASSERT_EQ(table->find("sparse")->data.shape(), (Shape{3, 4}));
  const auto all = ids(*table);
  EXPECT_EQ(all[3], crossed("all", {"city=Rome", "age=0", "site=x"}, 1000));
  EXPECT_EQ(all[7], crossed("all", {"city=Rome", "age=1", "site=x"}, 1000));
  EXPECT_EQ(all[11], crossed("all", {"city=Rome", "age=2", "site="}, 1000));
}

TEST(CrossTest, OfAFileWithoutAHeaderHasNoField) {
  const TempDir dir;
  std::ofstream(dir.path() / "a.csv") << "Rome,25,x\n";
  const auto table = read_csv({dir.path() / "a.csv"}, {.columns = crossed_columns()});
  EXPECT_EQ(ids(*table)[3], crossed("all", {"city=Rome", "age=0", "site=x"}, 1000));
}

TEST(CrossTest, RefusesWhatItCannotCross) {
  const auto refuse = [](ColumnSpec cross, const char* why) {
    cross.name = "both";
    cross.kind = kCategory;
    EXPECT_ERROR((TableBuilder({{.name = "a", .kind = kCategory, .buckets = 4},
                                {.name = "list", .kind = kCategory, .buckets = 4, .length = 3},
                                {.name = "x", .kind = ColumnKind::Numeric},
                                cross})),
                 InvalidArgument, HasSubstr(why));
  };
  refuse({.buckets = 5, .cross = {"a"}}, "two columns or more");
  refuse({.cross = {"a", "a"}}, "buckets");
  refuse({.buckets = 5, .cross = {"a", "later"}}, "'later', which is no column before it");
  refuse({.buckets = 5, .cross = {"a", "list"}}, "'list', which must be CATEGORICAL, of one id a row");
  refuse({.buckets = 5, .cross = {"a", "x"}}, "'x', which must be CATEGORICAL");
}

TEST(FieldTest, SeveralColumnsReadOneField) {
  const std::vector<ColumnSpec> columns{
      {.name = "hour", .kind = kCategory, .field = "time", .time_part = TimePart::Hour},
      {.name = "x", .kind = ColumnKind::Numeric},
      {.name = "day", .kind = kCategory, .field = "time", .time_part = TimePart::Weekday}};
  const TempDir dir;
  std::ofstream(dir.path() / "a.csv") << "x,time\n1,2026-03-01 07:00\n";
  std::ofstream(dir.path() / "b.csv") << "2026-03-01 07:00,1\n";
  for (const auto& [file, header] : {std::pair{"a.csv", true}, {"b.csv", false}}) {
    const auto table = read_csv({dir.path() / file}, {.header = header, .columns = columns});
    EXPECT_THAT(ids(*table), ElementsAre(7, 6)) << file;
    EXPECT_EQ(table->find("dense")->data.data<float>()[0], 1.0F);
  }
  std::ofstream(dir.path() / "c.csv") << "x,when\n1,2\n";
  EXPECT_ERROR(read_csv({dir.path() / "c.csv"}, {.header = true, .columns = columns}), InvalidArgument,
               HasSubstr("the header has no column 'time'"));
}

TEST(SharedTableTest, AWordHasOneIdInAllColumnsOfATable) {
  std::vector<ColumnSpec> columns{{.name = "seen", .kind = kCategory, .buckets = 1000},
                                  {.name = "bought", .kind = kCategory, .buckets = 1000}};
  for (ColumnSpec& column : columns) column.table.shared = "item";
  TableBuilder builder(columns);
  for (const std::size_t c : {0U, 1U}) EXPECT_THAT(builder.add_text(c, "apple"), IsEmpty());
  builder.end_row();
  const auto id = static_cast<std::int64_t>(stable_hash("item=apple") % 1000);
  EXPECT_THAT(ids(*builder.finish(0)), ElementsAre(id, id));
}

}  // namespace
}  // namespace braid
