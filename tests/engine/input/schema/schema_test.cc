// Schemas: what becomes of texts and typed values, and tables read from CSV, TFRecord and text by one of
// them.
#include "engine/input/schema/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <fstream>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/tfrecord.h"
#include "engine/input/generators/criteo_generator.h"
#include "tests/support/expect_error.h"
#include "tests/support/outside_data.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::int64_t hashed(const std::string& text, std::uint64_t buckets) {
  return static_cast<std::int64_t>(stable_hash(text) % buckets);
}

std::span<const std::int64_t> ints(const Table& table, const char* name) {
  return table.find(name)->data.data<std::int64_t>();
}
std::span<const float> floats(const Table& table, const char* name) {
  return table.find(name)->data.data<float>();
}

class SchemaTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir_.path() / name, std::ios::binary) << text;
    return dir_.path() / name;
  }
  TempDir dir_;
};

TEST_F(SchemaTest, VocabulariesBucketsAndListsOfText) {
  CsvOptions options{.separator = '\t'};
  options.columns = {
      {.name = "color", .kind = ColumnKind::Categorical, .buckets = 10, .vocabulary = {"red", "green"}},
      {.name = "tags", .kind = ColumnKind::Categorical, .buckets = 100, .length = 3, .output = "tags"},
      {.name = "sizes", .kind = ColumnKind::Numeric, .missing = -1, .length = 2, .list_separator = ' '},
      {.name = "kind", .kind = ColumnKind::Class, .vocabulary = {"cat", "dog"}}};
  const auto table =
      read_csv({write("a.tsv", "green\ta|b|c|d\t1.5 2.5 3.5\tdog\nblue\t\t7\tcat\n")}, options);
  ASSERT_EQ(table->rows, 2);
  EXPECT_THAT(ints(*table, "sparse"), ElementsAre(1, 2 + hashed("color=blue", 10)));
  EXPECT_EQ(table->find("tags")->data.shape(), (Shape{2, 3}));
  EXPECT_THAT(ints(*table, "tags"), ElementsAre(1 + hashed("tags=a", 100), 1 + hashed("tags=b", 100),
                                                1 + hashed("tags=c", 100), 0, 0, 0));
  EXPECT_THAT(floats(*table, "dense"), ElementsAre(1.5F, 2.5F, 7.0F, -1.0F));
  EXPECT_THAT(ints(*table, "label"), ElementsAre(1, 0));
  EXPECT_EQ(table->find("label")->data.shape(), (Shape{2}));
}

TEST_F(SchemaTest, ARowHasOneWeightWhichIsNotNegative) {
  const std::vector<ColumnSpec> columns = {{.name = "x", .kind = ColumnKind::Numeric},
                                           {.name = "w", .kind = ColumnKind::Weight}};
  const auto table = read_csv({write("a.csv", "1,0.5\n2,0\n3,12\n")}, {.columns = columns});
  EXPECT_THAT(floats(*table, "weight"), ElementsAre(0.5F, 0.0F, 12.0F));
  EXPECT_EQ(table->find("weight")->data.shape(), (Shape{3}));
  EXPECT_ERROR(read_csv({write("b.csv", "1,-1\n")}, {.columns = columns}), DataLoss,
               AllOf(HasSubstr("b.csv' line 1: column 2 (w)"), HasSubstr("a weight must not be negative")));
  EXPECT_ERROR(read_csv({write("c.csv", "1,\n")}, {.columns = columns}), DataLoss,
               AllOf(HasSubstr("c.csv' line 1: column 2 (w)"), HasSubstr("a weight is missing")));
  const auto refused = [&](std::vector<ColumnSpec> schema, const char* why) {
    EXPECT_ERROR(TableBuilder(std::move(schema)), InvalidArgument, HasSubstr(why));
  };
  refused({{.name = "w", .kind = ColumnKind::Weight, .length = 2}}, "length must be 1");
  refused({{.name = "w", .kind = ColumnKind::Weight, .output = "dense"}}, "is always 'weight'");
  refused({{.name = "x", .kind = ColumnKind::Numeric, .output = "weight"}}, "is for a column of kind WEIGHT");
  refused({{.name = "v", .kind = ColumnKind::Weight}, {.name = "w", .kind = ColumnKind::Weight}},
          "there is a column of weights already");
}

TEST_F(SchemaTest, NumbersBeyondTheRangeOfFloatAreBad) {
  const ColumnSpec plain{.name = "x", .kind = ColumnKind::Numeric};
  const ColumnSpec scaled{.name = "x", .kind = ColumnKind::Numeric, .scale = 1e-30};
  EXPECT_ERROR(
      read_csv({write("a.csv", "1\n-1e39\n")}, {.columns = {plain}}), DataLoss,
      AllOf(HasSubstr("a.csv' line 2: column 1 (x)"), HasSubstr("-1e+39 is beyond the range of float")));
  EXPECT_ERROR(read_csv({write("b.csv", "1e10\n")}, {.columns = {scaled}}), DataLoss,
               HasSubstr("b.csv' line 1: column 1 (x)"));
  const ColumnSpec weighted{
      .name = "ids", .kind = ColumnKind::Categorical, .buckets = 9, .ragged = true, .weight_separator = ':'};
  EXPECT_ERROR(read_csv({write("c.csv", "a:1e39\n")}, {.columns = {weighted}}), DataLoss,
               HasSubstr("1e+39 is beyond the range of float"));
}

TEST_F(SchemaTest, ScalesAndLengthsThatMakeNoNumbersAreRefused) {
  const auto refused = [](ColumnSpec column, const char* why) {
    column.name = "x";
    column.kind = ColumnKind::Numeric;
    EXPECT_ERROR(TableBuilder({column}), InvalidArgument, AllOf(HasSubstr("'x'"), HasSubstr(why)));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {nan, std::numeric_limits<double>::infinity()}) {
    refused({.shift = bad}, "scale, shift and missing must be finite");
    refused({.scale = bad}, "scale, shift and missing must be finite");
    refused({.missing = bad}, "scale, shift and missing must be finite");
  }
  refused({.missing = 1e39}, "missing, behind shift and scale, is beyond the range of float");
  refused({.scale = 1e-40, .missing = 1}, "missing, behind shift and scale, is beyond");
  refused({.length = std::int64_t{1} << 31}, "length is 2147483648, a row has at most 16777216 values");
}

TEST_F(SchemaTest, EmptyCategoriesAndClassesHaveAWord) {
  const std::vector<ColumnSpec> columns = {
      {.name = "color",
       .kind = ColumnKind::Categorical,
       .missing_word = "other",
       .vocabulary = {"red", "other"}},
      {.name = "free", .kind = ColumnKind::Categorical, .buckets = 10, .missing_word = "none"},
      {.name = "kind", .kind = ColumnKind::Class, .missing_word = "7"}};
  const auto table = read_csv({write("a.csv", "red,x,1\n,,\n")}, {.columns = columns});
  EXPECT_THAT(ints(*table, "sparse"), ElementsAre(0, hashed("free=x", 10), 1, hashed("free=none", 10)));
  EXPECT_THAT(ints(*table, "label"), ElementsAre(1, 7));
  TfRecordWriter out(dir_.path() / "a.tfrecord");
  ExampleWriter example;
  example.add("free", std::vector<std::string_view>{""});
  out.write(example.finish());
  out.finish();
  const auto packed = read_tfrecord({dir_.path() / "a.tfrecord"}, {.columns = columns});
  EXPECT_THAT(ints(*packed, "sparse"), ElementsAre(1, hashed("free=none", 10)));
  EXPECT_THAT(ints(*packed, "label"), ElementsAre(7));
}

TEST_F(SchemaTest, WordsOutsideOfAVocabularyAreBadRecords) {
  CsvOptions options;
  options.columns = {{.name = "y", .kind = ColumnKind::Class, .vocabulary = {"cat", "dog"}}};
  const auto file = write("a.csv", "dog\ncow\n");
  EXPECT_ERROR(read_csv({file}, options), DataLoss,
               AllOf(HasSubstr("a.csv' line 2: column 1 (y)"), HasSubstr("'cow' is not in the vocabulary")));
  options.read.max_bad_records = 1;
  EXPECT_EQ(read_csv({file}, options)->rows, 1);
}

TEST_F(SchemaTest, ContradictionsAreRefusedWithTheColumn) {
  const auto build = [](std::vector<ColumnSpec> columns) { TableBuilder builder(std::move(columns)); };
  EXPECT_ERROR(build({{.name = "c", .kind = ColumnKind::Categorical}}), InvalidArgument,
               HasSubstr("'c': buckets"));
  EXPECT_ERROR(build({{.name = "n", .kind = ColumnKind::Numeric, .scale = 0}}), InvalidArgument,
               HasSubstr("'n': scale"));
  EXPECT_ERROR(build({{.name = "n", .kind = ColumnKind::Numeric, .missing_word = "0"}}), InvalidArgument,
               HasSubstr("'n': missing_word is for CATEGORICAL and CLASS"));
  EXPECT_ERROR(build({{.name = "n", .kind = ColumnKind::Numeric, .length = 0}}), InvalidArgument,
               HasSubstr("length"));
  EXPECT_ERROR(build({{.name = "a", .kind = ColumnKind::Label}, {.name = "b", .kind = ColumnKind::Label}}),
               InvalidArgument, HasSubstr("'b': there is a label already"));
  EXPECT_ERROR(build({{.name = "a", .kind = ColumnKind::Numeric, .output = "x"},
                      {.name = "b", .kind = ColumnKind::Categorical, .buckets = 2, .output = "x"}}),
               InvalidArgument, HasSubstr("another type"));
  EXPECT_ERROR(build({{.name = "v", .kind = ColumnKind::Class, .vocabulary = {"x", "x"}}}), InvalidArgument,
               HasSubstr("'x' is in the vocabulary twice"));
  EXPECT_ERROR(build({{.name = "s"}}), InvalidArgument, HasSubstr("every column is skipped"));
}

TEST_F(SchemaTest, FeaturesOfRecordsFollowTheirSchema) {
  const auto file = dir_.path() / "a.tfrecord";
  TfRecordWriter out(file);
  ExampleWriter example;
  example.add("age", std::vector<std::int64_t>{40});
  example.add("job", std::vector<std::string_view>{"clerk"});
  example.add("clicks", std::vector<std::int64_t>{5, 6});
  example.add("y", std::vector<float>{1});
  out.write(example.finish());
  example.add("y", std::vector<std::int64_t>{0});  // another order, another type, and fields that are missing
  example.add("age", std::vector<float>{30.5F});
  out.write(example.finish());
  out.finish();
  TfRecordOptions options;
  options.columns = {
      {.name = "age", .kind = ColumnKind::Numeric, .shift = 30, .scale = 2},
      {.name = "job", .kind = ColumnKind::Categorical, .buckets = 50},
      {.name = "clicks", .kind = ColumnKind::Categorical, .buckets = 9, .length = 3, .output = "clicks"},
      {.name = "y", .kind = ColumnKind::Label}};
  const auto table = read_tfrecord({file}, options);
  EXPECT_THAT(floats(*table, "dense"), ElementsAre(5.0F, 0.25F));
  EXPECT_THAT(ints(*table, "sparse"), ElementsAre(hashed("job=clerk", 50), hashed("job=", 50)));
  EXPECT_THAT(ints(*table, "clicks"),
              ElementsAre(1 + hashed("clicks=5", 9), 1 + hashed("clicks=6", 9), 0, 0, 0, 0));
  EXPECT_THAT(floats(*table, "label"), ElementsAre(1.0F, 0.0F));
  options.columns.back().name = "age";
  options.columns.erase(options.columns.begin());
  options.columns[1].length = 1;
  EXPECT_ERROR(read_tfrecord({file}, options), DataLoss,
               AllOf(HasSubstr("record 1 at byte 0"), HasSubstr("'clicks': has 2 values")));
  options.columns = {{.name = "none", .kind = ColumnKind::Label}};
  EXPECT_ERROR(read_tfrecord({file}, options), InvalidArgument,
               AllOf(HasSubstr("has none of the schema's columns"), HasSubstr("age, job, clicks, y")));
}

/// As `braid data convert` writes the lists of a CSV: an id for "a|b" would be that of no item.
TEST_F(SchemaTest, ATextThatIsAFeaturesOnlyValueIsCutIntoItsItems) {
  const auto file = dir_.path() / "lists.tfrecord";
  TfRecordWriter out(file);
  ExampleWriter example;
  example.add("tags", std::vector<std::string_view>{"a|b"});
  example.add("words", std::vector<std::string_view>{"c|d", "e"});
  out.write(example.finish());
  out.finish();
  TfRecordOptions options;
  options.columns = {
      {.name = "tags", .kind = ColumnKind::Categorical, .buckets = 99, .length = 3, .output = "tags"},
      {.name = "words", .kind = ColumnKind::Categorical, .buckets = 99, .length = 3, .output = "words"}};
  const auto table = read_tfrecord({file}, options);
  EXPECT_THAT(ints(*table, "tags"), ElementsAre(1 + hashed("tags=a", 99), 1 + hashed("tags=b", 99), 0));
  EXPECT_THAT(ints(*table, "words"), ElementsAre(1 + hashed("words=c|d", 99), 1 + hashed("words=e", 99), 0))
      << "of several values each is an item";
}

TEST_F(SchemaTest, BadTfRecordsAreCountedUpToTheLimit) {
  const auto file = dir_.path() / "a.tfrecord";
  TfRecordWriter out(file);
  ExampleWriter example;
  for (std::int64_t i = 0; i < 5; ++i) {
    example.add("y", std::vector<std::int64_t>{i});
    out.write(i == 1 ? std::string_view("not an example") : example.finish());
    if (i == 1) example.finish();
  }
  out.finish();
  std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(-6, std::ios::end);
  damage.put('x');
  damage.close();
  TfRecordOptions options;
  options.columns = {{.name = "y", .kind = ColumnKind::Label}};
  EXPECT_ERROR(read_tfrecord({file}, options), DataLoss,
               AllOf(HasSubstr("a.tfrecord' record 2 at byte"), HasSubstr("not a tf.train.Example")));
  options.read.max_bad_records = 1;
  EXPECT_ERROR(
      read_tfrecord({file}, options), DataLoss,
      AllOf(HasSubstr("record 5"), HasSubstr("the CRC of its"), HasSubstr("bad record 2, at most 1")));
  options.read.max_bad_records = 2;
  const auto table = read_tfrecord({file}, options);
  EXPECT_THAT(floats(*table, "label"), ElementsAre(0, 2, 3));
  EXPECT_EQ(table->skipped, 2);
}

TEST_F(SchemaTest, LinesOfTextAreRecordsOfOneField) {
  TextOptions options;
  options.columns = {
      {.name = "line", .kind = ColumnKind::Categorical, .buckets = 1000, .length = 4, .list_separator = ' '}};
  const auto table = read_text_lines({write("a.txt", "the cat\r\n\nthe dog sat on it")}, options);
  ASSERT_EQ(table->rows, 3);
  const auto words = ints(*table, "sparse");
  EXPECT_EQ(words[0], words[8]);
  EXPECT_EQ(words[2], 0);
  EXPECT_EQ(words[4], 0);
  options.columns[0].name = "text";
  EXPECT_ERROR(read_text_lines({dir_.path() / "a.txt"}, options), InvalidArgument, HasSubstr("'text'"));
}

TEST_F(SchemaTest, ShardsOfRowsAreDisjointAndWhole) {
  std::string text;
  for (int i = 0; i < 11; ++i) text += std::to_string(i) + "\n";
  const auto file = write("a.csv", text);
  std::vector<float> seen;
  for (int rank = 0; rank < 3; ++rank) {
    CsvOptions options;
    options.columns = {{.name = "y", .kind = ColumnKind::Label}};
    options.read = {.rank = rank, .world = 3};
    const auto table = read_csv({file}, options);
    EXPECT_EQ(table->rows_of_all, 11);
    const auto part = floats(*table, "label");
    seen.insert(seen.end(), part.begin(), part.end());
  }
  EXPECT_THAT(seen, ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8));
}

TEST_F(SchemaTest, RealPenguinsHaveTheSumsOfTheirCsv) {
  const auto root = outside_data("tfrecord/tfx_penguin");
  SKIP_WITHOUT_OUTSIDE_DATA(root);
  TfRecordOptions records;
  for (const char* name : {"culmen_length_mm", "culmen_depth_mm", "flipper_length_mm", "body_mass_g"})
    records.columns.push_back({.name = name, .kind = ColumnKind::Numeric});
  records.columns.push_back({.name = "species", .kind = ColumnKind::Class});
  CsvOptions csv{.header = true, .columns = records.columns};
  std::rotate(csv.columns.begin(), csv.columns.end() - 1, csv.columns.end());
  const auto packed =
      read_tfrecord({root / "Split-train-00000-of-00001.gz", root / "Split-eval-00000-of-00001.gz"}, records);
  const auto plain = read_csv({root / "penguins_processed.csv"}, csv);
  ASSERT_EQ(packed->rows, 334);
  ASSERT_EQ(plain->rows, 334);
  double sums[2] = {0, 0};
  for (float v : floats(*packed, "dense")) sums[0] += v;
  for (float v : floats(*plain, "dense")) sums[1] += v;
  EXPECT_NEAR(sums[0], sums[1], 1e-3);
  std::int64_t classes[2] = {0, 0};
  for (auto v : ints(*packed, "label")) classes[0] += v;
  for (auto v : ints(*plain, "label")) classes[1] += v;
  EXPECT_EQ(classes[0], classes[1]);
}

}  // namespace
}  // namespace braid
