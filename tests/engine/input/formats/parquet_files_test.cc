// Parquet files of other writers and of ours, as rows, blocks and records.
#include "engine/input/formats/parquet_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/init.h"
#include "engine/input/formats/record_file.h"
#include "engine/input/formats/record_sink.h"
#include "engine/input/stream/row_blocks.h"
#include "engine/input/stream/streamed_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/missing.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ParquetTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(has_parquet()); }
  static std::filesystem::path types() {
    return std::filesystem::path(BRAID_SOURCE_DIR) / "tests/engine/input/golden/types.parquet";
  }
  static std::shared_ptr<Table> read(const std::filesystem::path& file, std::vector<ColumnSpec> columns,
                                     const ReadOptions& read = {}) {
    return stream_parquet({file}, {.columns = std::move(columns), .read = read})->next(INT64_MAX);
  }
  /// One column of a file of types.parquet as numbers, NaN where it is missing.
  static std::vector<float> numbers(const std::string& name) {
    const auto values = read(types(), {{.name = name, .kind = ColumnKind::Numeric, .missing = -1}});
    const auto data = values->find("dense")->data.data<float>();
    return {data.begin(), data.end()};
  }
  static std::vector<std::int64_t> ids(ColumnSpec column) {
    column.kind = ColumnKind::Categorical;
    const auto values = read(types(), {column});
    const auto data = values->find("sparse")->data.data<std::int64_t>();
    return {data.begin(), data.end()};
  }
  static std::int64_t id(const std::string& text, std::int64_t buckets = 1000) {
    return static_cast<std::int64_t>(stable_hash(text) % static_cast<std::uint64_t>(buckets));
  }

  /// Rows with numbers, a word each fifth of which is absent, a list and a label.
  std::filesystem::path write(const std::string& name, std::int64_t rows, std::int64_t row_group,
                              std::int64_t first = 0) const {
    RecordSinkOptions options{.format = FileFormat::Parquet,
                              .columns = {"x", "word", "ids", "y"},
                              .kinds = {{FeatureKind::Float, false},
                                        {FeatureKind::Bytes, false},
                                        {FeatureKind::Int64, true},
                                        {FeatureKind::Int64, false}},
                              .row_group_rows = row_group};
    const auto sink = RecordSink::create(dir_.path() / name, options);
    FeatureSet record;
    for (std::int64_t r = first; r < first + rows; ++r) {
      const std::string word = "word" + std::to_string(r % 97);
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < r % 4; ++i) ids.push_back(10 * r + i);
      record.clear();
      record.add("x", static_cast<float>(r) / 2);
      if (r % 5 != 0) record.add("word", std::string_view(word));
      record.add("ids", std::span<const std::int64_t>(ids));
      record.add("y", r % 2);
      sink->write(record);
    }
    sink->finish();
    return dir_.path() / name;
  }
  static std::vector<ColumnSpec> columns() {
    return {{.name = "x", .kind = ColumnKind::Numeric},
            {.name = "word", .kind = ColumnKind::Categorical, .buckets = 1000},
            {.name = "ids", .kind = ColumnKind::Categorical, .buckets = 1000, .length = 3},
            {.name = "y", .kind = ColumnKind::Label}};
  }
  static void expect_equal(const Table& got, const Table& all, std::int64_t first) {
    ASSERT_EQ(got.columns.size(), all.columns.size());
    for (std::size_t c = 0; c < got.columns.size(); ++c) {
      const std::size_t row = all.columns[c].data.bytes() / static_cast<std::size_t>(all.rows);
      EXPECT_EQ(std::memcmp(got.columns[c].data.raw(),
                            all.columns[c].data.raw() + static_cast<std::size_t>(first) * row,
                            static_cast<std::size_t>(got.rows) * row),
                0)
          << got.columns[c].name << " from " << first;
    }
  }

  TempDir dir_;
};

TEST_F(ParquetTest, NumbersOfAllTypes) {
  EXPECT_THAT(numbers("int8"), ElementsAre(1, -2, -1, 4));
  EXPECT_THAT(numbers("uint16"), ElementsAre(1, 65535, 3, -1));
  EXPECT_THAT(numbers("uint32"), ElementsAre(1, 4294967295.0F, 3, 4));
  EXPECT_THAT(numbers("int64"), ElementsAre(1, -2, 9007199254740993.0F, 4));
  EXPECT_THAT(numbers("half"), ElementsAre(0.5, -2, 65504, 0));
  EXPECT_THAT(numbers("float"), ElementsAre(0.5, -1, -1, 4)) << "NaN is missing, as null is";
  EXPECT_THAT(numbers("double"), ElementsAre(0.5, -2, 3, 4));
  EXPECT_THAT(numbers("bool"), ElementsAre(1, 0, 1, -1));
  EXPECT_THAT(numbers("date"), ElementsAre(10, 10, -1, 10));
  EXPECT_THAT(numbers("stamp"), ElementsAre(0, 1e6F, 2, 3));
  EXPECT_THAT(numbers("decimal"), ElementsAre(1.25, -2.5, -1, 0.01F));
  EXPECT_THAT(numbers("small_decimal"), ElementsAre(1.5, -1, -7.5, 0));
}

TEST_F(ParquetTest, WordsAreThoseOfOtherFormats) {
  EXPECT_THAT(ids({.name = "text", .buckets = 1000, .missing_word = "none"}),
              ElementsAre(id("text=Rome"), id("text=none"), id("text=none"), id("text=Oslo")));
  EXPECT_THAT(ids({.name = "dictionary", .buckets = 1000}),
              ElementsAre(id("dictionary=a"), id("dictionary=b"), id("dictionary=a"), id("dictionary=")));
  EXPECT_THAT(ids({.name = "text", .buckets = 5, .vocabulary = {"Oslo", "Rome"}}),
              ElementsAre(1, 2 + id("text=", 5), 2 + id("text=", 5), 0));
  EXPECT_THAT(ids({.name = "fixed", .buckets = 1000}),
              ElementsAre(id("fixed=ab"), id("fixed=cd"), id("fixed="), id("fixed=ef")));
  EXPECT_THAT(ids({.name = "uint32", .buckets = 1000}),
              ElementsAre(id("uint32=1"), id("uint32=4294967295"), id("uint32=3"), id("uint32=4")));
}

TEST_F(ParquetTest, ListsAreColumnsOfALength) {
  EXPECT_THAT(
      ids({.name = "list", .buckets = 1000, .length = 2}),
      ElementsAre(1 + id("list=1"), 1 + id("list=2"), 0, 0, 0, 0, 1 + id("list=4"), 1 + id("list=5")));
  EXPECT_THAT(ids({.name = "texts", .buckets = 1000, .length = 2}),
              ElementsAre(1 + id("texts=a"), 1 + id("texts=b"), 1 + id("texts=c"), 0, 0, 0, 0, 0));
  const auto floats =
      read(types(), {{.name = "floats", .kind = ColumnKind::Numeric, .missing = 9, .length = 2}});
  EXPECT_THAT(floats->find("dense")->data.data<float>(), ElementsAre(0.5, 9, 1.5, 2.5, 9, 9, 9, 9));
}

TEST_F(ParquetTest, ListsAreRaggedColumnsWithWeights) {
  const auto table =
      read(types(),
           {{.name = "list", .kind = ColumnKind::Categorical, .buckets = 1000, .length = 0, .ragged = true},
            {.name = "texts", .kind = ColumnKind::Categorical, .buckets = 1000, .length = 1, .ragged = true},
            {.name = "text", .kind = ColumnKind::Categorical, .buckets = 1000, .length = 0, .ragged = true}});
  const TableColumn& list = *table->find("sparse/list");
  EXPECT_THAT(list.data.data<std::int64_t>(),
              ElementsAre(id("list=1"), id("list=2"), id("list=3"), id("list=4"), id("list=5")));
  EXPECT_THAT(list.offsets.data<std::int64_t>(), ElementsAre(0, 3, 3, 3, 5));
  EXPECT_THAT(table->find("sparse/texts")->data.data<std::int64_t>(),
              ElementsAre(id("texts=a"), id("texts=c")))
      << "length cuts";
  EXPECT_THAT(table->find("sparse/text")->offsets.data<std::int64_t>(), ElementsAre(0, 1, 1, 2, 3))
      << "a flat column has one id or none";
  EXPECT_THAT(table->find("sparse/text")->data.data<std::int64_t>(),
              ElementsAre(id("text=Rome"), id("text="), id("text=Oslo")));
}

TEST_F(ParquetTest, AFlatColumnMayBeAListOfALength) {
  EXPECT_THAT(
      ids({.name = "dictionary", .buckets = 1000, .length = 2}),
      ElementsAre(1 + id("dictionary=a"), 0, 1 + id("dictionary=b"), 0, 1 + id("dictionary=a"), 0, 0, 0));
}

TEST_F(ParquetTest, AFullDiskNamesTheFileAndLeavesNothing) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << missing::kDevFull;
  // The temporary name is a link to /dev/full, so that every write fails as on a full disk.
  const auto temporary = dir_.path() / (".tmp-full.parquet-" + std::to_string(::getpid()));
  std::filesystem::create_symlink("/dev/full", temporary);
  EXPECT_ERROR(write("full.parquet", 100, 10), Unavailable,
               AllOf(HasSubstr("cannot write '"), HasSubstr("full.parquet'"), HasSubstr("No space left")));
  EXPECT_FALSE(std::filesystem::is_symlink(temporary));
}

/// Ids and weights of lists, of which one row has other numbers.
TEST_F(ParquetTest, WeightsAreAsManyAsIds) {
  RecordSinkOptions options{.format = FileFormat::Parquet,
                            .columns = {"ids", "w"},
                            .kinds = {{FeatureKind::Int64, true}, {FeatureKind::Float, true}},
                            .row_group_rows = 4};
  const auto sink = RecordSink::create(dir_.path() / "w.parquet", options);
  FeatureSet record;
  for (std::int64_t r = 0; r < 10; ++r) {
    const std::vector<std::int64_t> ids(static_cast<std::size_t>(r % 3), r);
    const std::vector<float> weights(static_cast<std::size_t>(r == 7 ? 3 : r % 3), static_cast<float>(r) / 2);
    record.clear();
    record.add("ids", std::span<const std::int64_t>(ids));
    record.add("w", std::span<const float>(weights));
    sink->write(record);
  }
  sink->finish();
  const std::vector<ColumnSpec> columns{
      {.name = "ids",
       .kind = ColumnKind::Categorical,
       .buckets = 1000,
       .length = 0,
       .ragged = true,
       .weights = "w"},
      {.name = "w", .kind = ColumnKind::Numeric, .scale = 2, .length = 0, .ragged = true}};
  EXPECT_ERROR(read(dir_.path() / "w.parquet", columns), DataLoss,
               HasSubstr("row 8: column 'ids': there are 3 weights for 1 ids"));
  for (const bool keeps : {false, true}) {
    const auto table =
        read(dir_.path() / "w.parquet", columns, {.max_bad_records = 1, .keep_bad_records = keeps});
    const TableColumn& column = *table->find("sparse/ids");
    EXPECT_EQ(column.offsets.shape(), (Shape{keeps ? 11 : 10}));
    EXPECT_THAT(column.weights.data<float>(), ElementsAre(0.25, 0.5, 0.5, 1, 1.25, 1.25, 2, 2)) << keeps;
    EXPECT_EQ(column.data.data<std::int64_t>()[6], id("ids=8"));
  }
}

TEST_F(ParquetTest, CrossesAndBucketsAreThoseOfOtherFormats) {
  const std::vector<ColumnSpec> columns{
      {.name = "dictionary", .kind = ColumnKind::Categorical, .buckets = 7},
      {.name = "size", .kind = ColumnKind::Categorical, .field = "double", .borders = {0, 3}},
      {.name = "day", .kind = ColumnKind::Categorical, .field = "int64", .time_part = TimePart::Hour},
      {.name = "both", .kind = ColumnKind::Categorical, .buckets = 1000, .cross = {"dictionary", "size"}}};
  const auto table = read(types(), columns, {.max_bad_records = 4, .keep_bad_records = true});
  const auto found = table->find("sparse")->data.data<std::int64_t>();
  TableBuilder builder(columns);
  const std::vector<std::pair<const char*, const char*>> rows{
      {"a", "0.5"}, {"b", "-2"}, {"a", "3"}, {"", "4"}};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(builder.add_text(0, rows[r].first), "");
    EXPECT_EQ(builder.add_text(1, rows[r].second), "");
    EXPECT_EQ(builder.add_text(2, "0"), "");
    EXPECT_EQ(builder.add_text(3, {}), "");
    builder.end_row();
  }
  const auto expected = builder.finish(0);
  for (const std::size_t r : {0U, 1U, 2U, 3U})
    for (const std::size_t c : {0U, 1U, 3U})
      EXPECT_EQ(found[4 * r + c], expected->find("sparse")->data.data<std::int64_t>()[4 * r + c])
          << r << " " << c;
}

TEST_F(ParquetTest, DatesOfRecordsAreTexts) {
  const auto records = RecordFile::open(
      std::filesystem::path(BRAID_SOURCE_DIR) / "tests/engine/input/golden/dates.parquet", {});
  std::vector<std::string> dates, lists;
  while (records->next()) {
    const FeatureSet& record = records->record();
    const auto text = [&](const char* name) {
      const Feature* const feature = record.find(name);
      std::string all;
      if (feature)
        for (const std::string_view value : record.bytes(*feature)) all += std::string(value) + " ";
      return all;
    };
    dates.push_back(text("date"));
    lists.push_back(text("days"));
  }
  EXPECT_THAT(dates, ElementsAre("2026-03-01 ", "1969-12-31 ", "", "1970-01-11 "))
      << "a number would be taken for seconds";
  EXPECT_THAT(lists, ElementsAre("2000-02-29 1900-01-01 ", "", "", "1970-01-01 "));
}

TEST_F(ParquetTest, DatesAndTimestampsSayTheirUnits) {
  const auto part = [](const std::string& name, TimePart part) {
    return ids({.name = name, .time_part = part});
  };
  EXPECT_THAT(part("date", TimePart::Weekday), ElementsAre(6, 6, 7, 6)) << "1970-01-11 is a Sunday";
  EXPECT_THAT(part("old", TimePart::Hour), ElementsAre(23, 0, 3, 24));
  EXPECT_THAT(part("old", TimePart::Month), ElementsAre(11, 0, 0, 12));
  EXPECT_THAT(part("stamp", TimePart::Minute), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(part("epoch", TimePart::Minute), ElementsAre(30, 30, 31, 60)) << "doubles keep their seconds";
  const auto table = read(
      types(), {{.name = "old", .kind = ColumnKind::Numeric, .missing = 7, .time_part = TimePart::Seconds}});
  EXPECT_THAT(table->find("dense")->data.data<float>(), ElementsAre(-3600, 0, 97445, 7));
}

TEST_F(ParquetTest, DoublesHaveTheBucketsOfTheirTexts) {
  EXPECT_THAT(ids({.name = "edges", .borders = {0.1, 0.3, 0.7}}), ElementsAre(3, 2, 1, 4));
  EXPECT_THAT(ids({.name = "edges", .borders = {0.1F, 0.3F, 0.7F}}), ElementsAre(3, 2, 1, 4))
      << "of statistics, which are floats";
}

TEST_F(ParquetTest, Uint64HasAllItsDigits) {
  EXPECT_THAT(numbers("uint64"), ElementsAre(1, 18446744073709551615.0F, -1, 9223372036854775808.0F));
  EXPECT_THAT(ids({.name = "uint64", .buckets = 1000}),
              ElementsAre(id("uint64=1"), id("uint64=18446744073709551615"), id("uint64="),
                          id("uint64=9223372036854775808")));
  const auto table =
      read(types(), {{.name = "double", .kind = ColumnKind::Numeric}}, {.key_column = "uint64"});
  EXPECT_THAT(table->keys, ElementsAre("1", "18446744073709551615", "", "9223372036854775808"));
}

TEST_F(ParquetTest, RefusesWhatItCannotMean) {
  const auto refused = [](ColumnSpec column) { read(types(), {std::move(column)}); };
  EXPECT_ERROR(refused({.name = "nested", .kind = ColumnKind::Numeric, .length = 2}), InvalidArgument,
               AllOf(HasSubstr("types.parquet' column 'nested'"), HasSubstr("nested")));
  for (const char* name : {"struct", "structs"})
    EXPECT_ERROR(refused({.name = name, .kind = ColumnKind::Numeric, .length = 2}), InvalidArgument,
                 HasSubstr("is nested: only lists of one level are read"));
  EXPECT_ERROR(refused({.name = "double", .kind = ColumnKind::Categorical, .buckets = 9}), InvalidArgument,
               HasSubstr("an id needs integers or texts"));
  EXPECT_ERROR(refused({.name = "list", .kind = ColumnKind::Categorical, .buckets = 9}), InvalidArgument,
               HasSubstr("is a list, the schema's length is 1"));
  EXPECT_ERROR(refused({.name = "gone", .kind = ColumnKind::Numeric}), InvalidArgument,
               AllOf(HasSubstr("has no column 'gone'; its columns: int8, uint16")));
  EXPECT_ERROR(refused({.name = "text", .kind = ColumnKind::Numeric}), DataLoss,
               AllOf(HasSubstr("row 1: column 'text'"), HasSubstr("'Rome' is not a number")));
}

TEST_F(ParquetTest, BadRowsAreSkippedOrKept) {
  ReadOptions options{.max_bad_records = 4};
  const std::vector<ColumnSpec> columns{{.name = "int8", .kind = ColumnKind::Label},
                                        {.name = "double", .kind = ColumnKind::Numeric}};
  const auto skipped = read(types(), columns, options);
  EXPECT_THAT(skipped->find("label")->data.data<float>(), ElementsAre(1, -2, 4));
  EXPECT_THAT(skipped->find("dense")->data.data<float>(), ElementsAre(0.5, -2, 4));
  options.keep_bad_records = true;
  const auto kept = read(types(), columns, options);
  EXPECT_THAT(kept->bad_rows, ElementsAre(2));
  EXPECT_THAT(kept->find("dense")->data.data<float>(), ElementsAre(0.5, -2, 0, 4));
}

TEST_F(ParquetTest, KeysGroupsAndIgnoredLabels) {
  const auto table = read(
      types(),
      {{.name = "double", .kind = ColumnKind::Numeric}, {.name = "not there", .kind = ColumnKind::Label}},
      {.key_column = "text", .group_column = "int64", .ignored = {"label"}});
  EXPECT_THAT(table->keys, ElementsAre("Rome", "", "", "Oslo"));
  EXPECT_EQ(table->find(kGroupColumn)->data.data<std::int64_t>()[1],
            static_cast<std::int64_t>(stable_hash("-2")));
  EXPECT_THAT(table->find("label")->data.data<float>(), ElementsAre(0, 0, 0, 0));
}

TEST_F(ParquetTest, StreamsInPiecesOfAnySizeAreTheWhole) {
  const auto file = write("a.parquet", 1000, 64);
  const auto all = read(file, columns());
  ASSERT_EQ(all->rows, 1000);
  for (const std::int64_t step : {1, 7, 64, 100, 999}) {
    const auto stream = stream_parquet({file}, {.columns = columns()});
    std::int64_t first = 0;
    while (true) {
      const auto part = stream->next(step);
      if (part->rows == 0) break;
      expect_equal(*part, *all, first);
      first += part->rows;
    }
    EXPECT_EQ(first, 1000);
  }
}

/// Row groups of one row, of a few, and one that is cut into many blocks.
TEST_F(ParquetTest, BlocksHaveTheRowsOfTheFiles) {
  for (const std::int64_t row_group : {1, 50, 20000}) {
    const std::int64_t rows_of_first = row_group == 1 ? 3000 : 20000;
    const std::vector<std::filesystem::path> files{write("a.parquet", rows_of_first, row_group),
                                                   write("b.parquet", 37, row_group, rows_of_first)};
    const auto all = stream_parquet(files, {.columns = columns()})->next(INT64_MAX);
    const auto source = make_row_blocks(
        parquet_indexes(files, {.columns = columns()}, 4096),
        [](const ReadOptions& read) { return stream_parquet({}, {.columns = columns(), .read = read}); }, 0);
    EXPECT_EQ(rows_of(*source), rows_of_first + 37);
    EXPECT_GT(source->blocks().size(), 10U);
    EXPECT_LT(source->blocks().size(), 2000U);
    std::int64_t before = 0;
    for (std::size_t b = 0; b < source->blocks().size(); ++b) {
      const std::int64_t rows = source->blocks()[b].rows;
      if (b % 7 == 0 || b + 1 == source->blocks().size()) {
        const BlockPart part{b, rows / 3, rows - rows / 3};
        const auto got = source->read(std::span(&part, 1));
        ASSERT_EQ(got->rows, part.rows);
        expect_equal(*got, *all, before + part.first);
      }
      before += rows;
    }
    const BatchOptions batches{.global_batch = 64, .shuffle = false};
    Batcher stream(std::make_shared<StreamedRows>(std::shared_ptr<BlockSource>(make_row_blocks(
                                                      parquet_indexes(files, {.columns = columns()}, 65536),
                                                      [](const ReadOptions& read) {
                                                        return stream_parquet(
                                                            {}, {.columns = columns(), .read = read});
                                                      },
                                                      0)),
                                                  StreamedRowsOptions{}, batches),
                   {"dense", "sparse"}, batches);
    Batcher table(all, {"dense", "sparse"}, batches);
    for (std::uint64_t t = 0; t < 90; t += 9) {
      const Batch one = stream.make(t), other = table.make(t);
      EXPECT_EQ(std::memcmp(one.tensors[1].raw(), other.tensors[1].raw(), one.tensors[1].bytes()), 0);
    }
  }
}

TEST_F(ParquetTest, DriftBetweenFilesIsNamed) {
  const auto good = write("a.parquet", 10, 5);
  RecordSinkOptions options{.format = FileFormat::Parquet,
                            .columns = {"x", "word", "y"},
                            .kinds = {{FeatureKind::Int64}, {FeatureKind::Float}, {FeatureKind::Int64}}};
  const auto sink = RecordSink::create(dir_.path() / "b.parquet", options);
  FeatureSet record;
  record.add("x", std::int64_t{7});
  record.add("word", 0.5F);
  record.add("y", std::int64_t{1});
  sink->write(record);
  sink->finish();
  const std::vector<std::filesystem::path> files{good, dir_.path() / "b.parquet"};
  EXPECT_ERROR(parquet_indexes(files, {.columns = columns()}, 4096), InvalidArgument,
               HasSubstr("b.parquet' column 'word': has floats"));
  std::vector<ColumnSpec> lists = columns();
  lists.erase(lists.begin() + 1);
  EXPECT_ERROR(parquet_indexes(files, {.columns = lists}, 4096), InvalidArgument,
               HasSubstr("b.parquet' has no column 'ids'; its columns: x, word, y"));
  const std::vector<ColumnSpec> numbers{{.name = "x", .kind = ColumnKind::Numeric}};
  const auto table = stream_parquet(files, {.columns = numbers})->next(INT64_MAX);
  EXPECT_EQ(table->find("dense")->data.data<float>()[10], 7)
      << "an integer where others have floats is a number";
}

TEST_F(ParquetTest, DamagedFilesAreNamed) {
  const auto file = write("a.parquet", 1000, 100);
  const std::string bytes = read_file(file);
  std::ofstream(dir_.path() / "cut.parquet", std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  EXPECT_ERROR(read(dir_.path() / "cut.parquet", columns()), DataLoss,
               HasSubstr("cut.parquet': not a Parquet file"));
  std::string flipped = bytes;
  flipped[2000] = static_cast<char>(flipped[2000] ^ 0x55);
  std::ofstream(dir_.path() / "flipped.parquet", std::ios::binary) << flipped;
  EXPECT_ERROR(read(dir_.path() / "flipped.parquet", columns()), DataLoss,
               AllOf(HasSubstr("flipped.parquet' row group"), HasSubstr("column '")));
}

TEST_F(ParquetTest, RecordsComeBackAsTheyWereWritten) {
  const auto file = write("a.parquet", 300, 64);
  const auto records = RecordFile::open(file, {});
  EXPECT_EQ(records->format(), FileFormat::Parquet);
  std::int64_t row = 0;
  while (records->next()) {
    const FeatureSet& record = records->record();
    EXPECT_EQ(record.floats(*record.find("x"))[0], static_cast<float>(row) / 2);
    EXPECT_EQ(record.find("word") == nullptr, row % 5 == 0);
    if (row % 5 != 0) {
      EXPECT_EQ(record.bytes(*record.find("word"))[0], "word" + std::to_string(row % 97));
    }
    EXPECT_EQ(record.find("ids") ? record.find("ids")->count : 0, static_cast<std::size_t>(row % 4));
    ++row;
  }
  EXPECT_EQ(row, 300);
}

}  // namespace
}  // namespace braid
