// Files that are none of what their reader expects: each is told with what to do.
#include "engine/input/formats/foreign.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/input/formats/readers.h"
#include "engine/input/formats/record_file.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ForeignTest, NumbersOfOtherCountriesSayHowToWriteThem) {
  EXPECT_EQ(not_a_number("6,72"),
            "'6,72' is not a number here: write 6.72, with a point and without separators of thousands");
  EXPECT_THAT(not_a_number("-1.234,5"), HasSubstr("write -1234.5,"));
  EXPECT_THAT(not_a_number("1,234"), HasSubstr("write 1.234 or 1234,")) << "nobody knows which";
  EXPECT_THAT(not_a_number("1,234,567.25"), HasSubstr("write 1234567.25,"));
  EXPECT_THAT(not_a_number("NA"), HasSubstr("a number that is missing is an empty field or '?'"));
  EXPECT_EQ(not_a_number("NA", false), "'NA' is not a number") << "of a label, say";
  EXPECT_THAT(not_a_number("true"), HasSubstr("a LABEL with `positive: \"true\"`"));
  for (const char* const other : {"old", "1,234,567", "1.2.3", "12%", "", "1,2.3,4", ",5"})
    EXPECT_EQ(not_a_number(other), fmt::format("'{}' is not a number", other));
}

class ForeignFileTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(dir_.path() / name, std::ios::binary) << bytes;
    return dir_.path() / name;
  }
  static CsvOptions options(bool header) {
    CsvOptions options;
    options.columns = {{.name = "age", .kind = ColumnKind::Numeric},
                       {.name = "city", .kind = ColumnKind::Categorical, .buckets = 5},
                       {.name = "y", .kind = ColumnKind::Label}};
    options.header = header;
    return options;
  }
  /// With a header and without.
  std::string refusal(std::string_view bytes) const {
    const auto file = write("f.csv", bytes);
    const std::string with = message_of<DataLoss>([&] { read_csv({file}, options(true)); });
    return fmt::format("{}\n{}", with, message_of<DataLoss>([&] { read_csv({file}, options(false)); }));
  }

  const TempDir dir_;
};

TEST_F(ForeignFileTest, AreToldByTheirKind) {
  const std::string row(
      "1\0,\0R\0,\0"
      "1\0\n\0",
      12);
  const std::pair<std::string, const char*> files[] = {
      {fmt::format("\xFF\xFE{0}{0}", row), "UTF-16"},
      {fmt::format("{0}{0}{0}", row), "UTF-16"},
      {std::string("BZh91AY&SY\0"
                   "12\n3\n",
                   16),
       "bzip2"},
      {std::string("\xFD"
                   "7zXZ\0\n1\n",
                   9),
       "xz"},
      {"PK\x03\x04 12\n3\n", "ZIP archive"},
      {"PAR1 12\n3\n", "input.format: PARQUET"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 12\n", "git lfs pull"},
      {"<!DOCTYPE html>\n<html>\n", "web page"},
      {"{\"age\": 1}\n{\"age\": 2}\n", "JSON"},
      {std::string("\x07\0\0\x08\n\0\n", 7), "binary"},
      {"age,city,y\r1,Rome,0\r2,Rome,1\r", "carriage returns alone"},
      {"age;city;y\n1,5;Rome;0\n2,5;Oslo;1\n",
       "its lines have 3 fields between ';': input.csv.separator: \";\""},
      {"age\tcity\ty\n1\tRome\t0\n2\tOslo\t1\n", "its lines have 3 fields between tabs"}};
  for (const auto& [bytes, what] : files) {
    const std::string both = refusal(bytes);
    const auto line = both.find('\n');
    EXPECT_THAT(both.substr(0, line), AllOf(HasSubstr("f.csv' line "), HasSubstr(what))) << "with a header";
    EXPECT_THAT(both.substr(line), AllOf(HasSubstr("f.csv' line "), HasSubstr(what))) << "without one";
  }
}

TEST_F(ForeignFileTest, OrdinaryMistakesAreNotTakenForThem) {
  EXPECT_THAT(refusal("age,city,y\n1,Rome\n"),
              AllOf(HasSubstr("expected 3 fields, got 2"), Not(HasSubstr(": the"))));
  EXPECT_EQ(foreign_kind("age,city,y\n1,Rome,1\n"), "");
  EXPECT_EQ(foreign_kind(""), "");
  EXPECT_EQ(foreign_kind("ORC,BZh,y\n1,Rome,1\n"), "") << "names of columns";
  EXPECT_EQ(foreign_kind("Z\xC3\xBCrich,1\n"), "");
}

/// Lists that another separator would cut into as many fields, in a file for predictions.
TEST_F(ForeignFileTest, AFileWithoutIgnoredColumnsUnderOtherNamesIsRead) {
  CsvOptions without = options(true);
  without.read.ignored = {"label"};
  const auto table = read_csv({write("p.csv", "years,town\n1,a|b|c\n2,c|d|e\n")}, without);
  EXPECT_EQ(table->rows, 2);
}

/// As pandas writes an index: the header has a name less than rows have fields, which the schema's order
/// names.
TEST_F(ForeignFileTest, AShortHeaderAboveListsIsPassedOver) {
  const auto table = read_csv({write("i.csv", "years,town\n1,a|b|c,0\n2,c|d|e,1\n")}, options(true));
  EXPECT_EQ(table->rows, 2);
}

TEST_F(ForeignFileTest, AreNoRecordsToShow) {
  EXPECT_THAT(message_of([&] {
                RecordFile::open(write("f.bin", std::string_view("BZh91AY&SY\0\0\x01\x02", 14)), {});
              }),
              HasSubstr("bzip2"));
}

}  // namespace
}  // namespace braid
