// `braid data stats | split | shuffle`, and Parquet in show and convert.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/files.h"
#include "tests/cli/tool_test.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class DataFilesTest : public ToolTest {
 protected:
  std::string rows(int count) {
    std::string text = "x,word,y\n";
    for (int i = 0; i < count; ++i)
      text += std::to_string(i) + "," + (i % 10 == 0 ? "" : "w" + std::to_string(i % 7)) + "," +
              std::to_string(i % 2) + "\n";
    return write("rows.csv", text);
  }
  static std::multiset<std::string> lines_of(const std::string& file) {
    std::istringstream text(read_file(file));
    std::multiset<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.insert(line);
    return lines;
  }
};

TEST_F(DataFilesTest, StatsCountWhatIsThere) {
  const Json stats = Json::parse(expect_good({"data", "stats", "--json", rows(10000)}));
  EXPECT_EQ(stats["records"], 10000);
  const Json& x = stats["features"]["x"];
  EXPECT_EQ(x["missing"], 0);
  EXPECT_NEAR(x["distinct"].get<double>(), 10000, 600);
  EXPECT_EQ(x["min"], 0);
  EXPECT_EQ(x["max"], 9999);
  EXPECT_NEAR(x["mean"].get<double>(), 4999.5, 1e-6);
  EXPECT_NEAR(x["quantiles"]["0.5"].get<double>(), 5000, 150);
  EXPECT_NEAR(x["quantiles"]["0.99"].get<double>(), 9900, 150);
  const Json& word = stats["features"]["word"];
  EXPECT_EQ(word["missing"], 1000);
  EXPECT_EQ(word["distinct"], 7);
  EXPECT_THAT(expect_good({"data", "stats", rows(100)}), HasSubstr("100 records in 1 file"));
}

TEST_F(DataFilesTest, StatsTakeTheItemsOfListsForWords) {
  const std::string file = write("lists.csv", "tags,seen,n\nb|a,x;y,1\nb,y,2\n,|;y,3\nb|c|b,x,4\n");
  expect_good({"data", "stats", "--list", "tags", "--list", "seen=;", file, "--vocabularies", path("words")});
  EXPECT_EQ(read_file(path("words") + "/tags.txt"), "b\na\nc\n");
  EXPECT_EQ(read_file(path("words") + "/seen.txt"), "y\nx\n|\n");
  EXPECT_EQ(read_file(path("words") + "/n.txt"), "1\n2\n3\n4\n");
  expect_refused({"data", "stats", "--list", "tag", file, "--vocabularies", path("words")},
                 HasSubstr("no record has a feature 'tag'"));
  expect_refused({"data", "stats", "--list", "tags", file}, HasSubstr("--vocabularies"));
}

TEST_F(DataFilesTest, StatsWriteVocabulariesByFrequencyAndWhatJobsScaleBy) {
  const std::string file = write("words.csv", "w,n\nb,1\na,2\nb,3\nc,4\na,5\nb,6\n,7\n");
  const std::string told = expect_good(
      {"data", "stats", file, "--vocabularies", path("words"), "--min-count", "2", "--most-words", "5"});
  EXPECT_EQ(read_file(path("words") + "/w.txt"), "b\na\n");
  EXPECT_THAT(told, HasSubstr("2 of 3 words, 83.33 % of the values"));
  EXPECT_THAT(told, HasSubstr("more than 5 different words: no vocabulary"));
  const Json n = Json::parse(expect_good({"data", "stats", "--json", file}))["features"]["n"];
  EXPECT_EQ(n["percentiles"].size(), 101U);
  EXPECT_EQ(n["percentiles"][50], 4);
  EXPECT_NEAR(n["log1p_mean"].get<double>(), 1.5150, 1e-3);
}

TEST_F(DataFilesTest, SplitsDealEachRecordOnce) {
  const std::string file = rows(5000), train = path("train.csv"), test = path("test.csv");
  expect_good({"data", "split", file, "--into", train + "=0.9", "--into", test + "=0.1"});
  std::multiset<std::string> together = lines_of(train);
  const auto rest = lines_of(test);
  EXPECT_NEAR(static_cast<double>(rest.size()), 500, 100);
  together.insert(rest.begin(), rest.end());
  together.erase(together.find("x,word,y"));  // of two headers
  EXPECT_EQ(together, lines_of(file));
  const std::string before = read_file(train);
  expect_good({"data", "split", file, "--into", train + "=0.9", "--into", test + "=0.1"});
  EXPECT_EQ(read_file(train), before) << "the seed decides";
  expect_refused({"data", "split", file, "--into", train + "=0"}, HasSubstr("FILE=SHARE"));
}

TEST_F(DataFilesTest, ShufflesKeepEachRecordAndUseFilesBetween) {
  const std::string file = rows(200000), out = path("mixed.csv");
  EXPECT_THAT(expect_good({"data", "shuffle", file, "--out", out, "--memory", "2"}),
              HasSubstr("files in between"));
  EXPECT_EQ(lines_of(out), lines_of(file));
  std::ifstream text(out);
  std::string line;
  std::getline(text, line);
  double sum = 0;
  for (int i = 0; i < 2000 && std::getline(text, line); ++i) sum += std::atof(line.c_str());
  EXPECT_NEAR(sum / 2000, 100000, 6000) << "the first rows are from everywhere";
  EXPECT_FALSE(std::filesystem::exists(path(".braid-shuffle-mixed.csv")));
}

/// From text to text nothing is taken for a number, and nothing changes.
TEST_F(DataFilesTest, FieldsOfLinesStayAsTheyWereWritten) {
  const std::string text =
      "zip,user,price,note\n01234,12345678901234567890,2.50,+5\n98765,99999999999999999999,0.123456789012,"
      "1e5\n";
  const std::string file = write("ids.csv", text);
  const auto lines = lines_of(file);
  expect_good({"data", "convert", file, "--out", path("as.csv")});
  EXPECT_EQ(read_file(path("as.csv")), text);
  expect_good({"data", "shuffle", file, "--out", path("mixed.csv")});
  EXPECT_EQ(lines_of(path("mixed.csv")), lines);
  expect_good({"data", "split", file, "--into", path("a.csv") + "=1", "--into", path("b.csv") + "=1"});
  auto parts = lines_of(path("a.csv"));
  parts.merge(lines_of(path("b.csv")));
  parts.erase(parts.find("zip,user,price,note"));
  EXPECT_EQ(parts, lines);
}

/// What is no integer's decimal text would be another word as a number, with another hash.
TEST_F(DataFilesTest, DigitsThatAreNoIntegerStayTexts) {
  const std::string text = "n,user,zip\n1,12345678901234567890,01234\n-2,99999999999999999999,98765\n";
  const std::string file = write("ids.csv", text);
  expect_good({"data", "convert", file, "--out", path("ids.tfrecord")});
  expect_good({"data", "convert", path("ids.tfrecord"), "--out", path("back.csv")});
  EXPECT_EQ(read_file(path("back.csv")), text);
}

TEST_F(DataFilesTest, AFileOfOneColumnIsACsvWhereAnOptionOfCsvSaysSo) {
  const std::string file = write("one.csv", "a\n1\n2\n");
  expect_good({"data", "convert", file, "--header", "--out", path("two.csv")});
  EXPECT_EQ(read_file(path("two.csv")), "a\n1\n2\n");
  expect_good({"data", "convert", file, "--out", path("lines.csv")});
  EXPECT_EQ(read_file(path("lines.csv")), "line\na\n1\n2\n");
}

TEST_F(DataFilesTest, ParquetIsWrittenShownAndReadBack) {
  const std::string file = rows(1000), parquet = path("rows.parquet"), back = path("back.csv");
  const auto made = run("tool", {"data", "convert", file, "--out", parquet, "--row-group", "300"});
  if (made->exit_code() == 2) {  // of a build without Apache Arrow
    EXPECT_THAT(made->err(), HasSubstr("this build reads no Parquet"));
    return;
  }
  EXPECT_THAT(made->out(), HasSubstr("1000 records, parquet")) << made->err();
  const Json shown = Json::parse(expect_good({"data", "show", "--json", parquet}));
  EXPECT_EQ(shown["features"]["word"]["present"], 900);
  expect_good({"data", "convert", parquet, "--out", back});
  EXPECT_EQ(read_file(back), read_file(file));
  EXPECT_THAT(expect_good({"data", "show", "--columns", parquet}),
              HasSubstr("name: \"word\" kind: CATEGORICAL"));
}

}  // namespace
}  // namespace braid::integration
