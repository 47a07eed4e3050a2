// Files of any format as records, what they look like, and conversions that lose nothing.
#include "engine/input/formats/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/record_sink.h"
#include "engine/input/formats/record_summary.h"
#include "engine/input/formats/sniff.h"
#include "engine/input/formats/tfrecord.h"
#include "engine/input/generators/criteo_generator.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class RecordFileTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir_.path() / name, std::ios::binary) << text;
    return dir_.path() / name;
  }
  fs::path convert(const fs::path& from, const std::string& name, RecordSinkOptions options) {
    const auto in = RecordFile::open(from, {});
    if (options.format == FileFormat::Csv && options.columns.empty()) options.columns = in->column_names();
    const auto out = RecordSink::create(dir_.path() / name, options);
    while (in->next()) out->write(in->record());
    out->finish();
    return dir_.path() / name;
  }
  TempDir dir_;
};

RecordSummary summary_of(const fs::path& file, const RecordFileOptions& options = {}) {
  RecordSummary summary;
  const auto in = RecordFile::open(file, options);
  while (in->next()) summary.add(in->record());
  return summary;
}

TEST_F(RecordFileTest, FormatsAreToldByTheirContent) {
  EXPECT_EQ(sniff_format(write("a", "1,2\n3,4\n")), FileFormat::Csv);
  EXPECT_EQ(sniff_format(write("a", "x\ty\n3\t4\n")), FileFormat::Csv);
  EXPECT_EQ(sniff_format(write("a", "the cat\nthe dog, and the cow\nthe hen\n")), FileFormat::Text);
  EXPECT_EQ(sniff_format(write("a", std::string("\0\0\x08\x01\0\0\0\x01\x07", 9))), FileFormat::Idx);
  EXPECT_EQ(sniff_format(write("a", std::string("\x03\0\0\0\0\0\0\0damaged", 15))), FileFormat::TfRecord);
  EXPECT_EQ(sniff_format(write("a.tfrecord", "")), FileFormat::TfRecord);
  TfRecordWriter(dir_.path() / "nothing", Compression::Gzip).finish();
  EXPECT_EQ(summary_of(dir_.path() / "nothing").records(), 0) << "packed nothing is a file without records";
  EXPECT_ERROR(sniff_format(write("a", "")), InvalidArgument, HasSubstr("is empty"));
  EXPECT_EQ(sniff_format(write("part-00003", "")), FileFormat::TfRecord) << "a piece without records";
  EXPECT_EQ(sniff_format(write("part-00004", "1,2\n3,4\n")), FileFormat::Csv);
  EXPECT_EQ(sniff_format(write("a",
                               "\xEF\xBB\xBF"
                               "a,b\n1,2\n")),
            FileFormat::Csv);
  EXPECT_ERROR(sniff_format(dir_.path() / "none"), InvalidArgument, HasSubstr("No such file"));
  generate_criteo(dir_.path() / "rows", {.rows = 3});
  EXPECT_EQ(sniff_format(dir_.path() / "rows"), FileFormat::Criteo);
}

TEST_F(RecordFileTest, FilesOfOtherProgramsAreToldWhatTheyAre) {
  using namespace std::string_literals;
  const auto refused = [&](const std::string& content, const std::string& what) {
    const fs::path file = write("other", content);
    EXPECT_ERROR(sniff_format(file), InvalidArgument, HasSubstr("other' is " + what));
  };
  refused("ARROW1\0\0..."s, "an Arrow file (Feather): write it as Parquet");
  refused("ORC\0..."s, "an ORC file");
  refused("Obj\x01\0..."s, "an Avro file");
  refused("\x89HDF\r\n\x1A\n\0..."s, "an HDF5 file");
  refused("SQLite format 3\0..."s, "a SQLite database");
  refused("PK\x03\x04\0..."s, "a ZIP archive (.zip, .npz, .xlsx)");
  refused(
      "\xFF\xFE"
      "a\0,\0"s,
      "text in UTF-16");
  refused("BZh91AY&SY\0..."s, "packed by bzip2");
  EXPECT_EQ(sniff_format(write("text", "ORC,BZh\n1,2\n")), FileFormat::Csv)
      << "a column may have such a name";
}

TEST_F(RecordFileTest, CsvColumnsHaveNamesAndTypes) {
  const auto file = write("a.csv", "id,score,name,mixed\n1,0.5,\"a, b\",2\n-7,3,,2.5\r\n");
  const auto in = RecordFile::open(file, {});
  ASSERT_TRUE(in->next());
  const FeatureSet& record = in->record();
  EXPECT_THAT(record.ints(*record.find("id")), ElementsAre(1));
  EXPECT_THAT(record.floats(*record.find("score")), ElementsAre(0.5F));
  EXPECT_THAT(record.bytes(*record.find("name")), ElementsAre("a, b"));
  EXPECT_THAT(record.floats(*record.find("mixed")), ElementsAre(2.0F));
  ASSERT_TRUE(in->next());
  EXPECT_THAT(record.ints(*record.find("id")), ElementsAre(-7));
  EXPECT_EQ(record.find("name"), nullptr) << "an empty field is missing";
  EXPECT_FALSE(in->next());
  EXPECT_EQ(summary_of(file, {.header = false}).records(), 3);
}

TEST_F(RecordFileTest, TheSeparatorThatCutsAllLinesAlikeIsTaken) {
  const auto file = write("a.csv", "id;price\n1;2,5\n2;3,25\n");
  EXPECT_EQ(RecordFile::open(file, {})->column_names(), (std::vector<std::string>{"id", "price"}));
  EXPECT_EQ(summary_of(file).features().find("price")->second.kind, FeatureKind::Bytes);
}

TEST_F(RecordFileTest, ASeparatorInsideOfQuotesCutsNothing) {
  const auto file = write("a.csv", "\"a\",\"b\"\n\"x\ty\",\"z\"\n\"p\",\"q\tr\"\n\"s\",\"t\"\n");
  EXPECT_EQ(RecordFile::open(file, {.header = true})->column_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(summary_of(file, {.header = true}).records(), 3);
}

TEST_F(RecordFileTest, CommentsDoNotHideThatAFileIsCsv) {
  const auto file = write("a.csv", "#made by hand\na,b\n#x\n1,2\n");
  EXPECT_EQ(RecordFile::open(file, {})->format(), FileFormat::Text);
  const auto in = RecordFile::open(file, {.comment = "#"});
  EXPECT_EQ(in->format(), FileFormat::Csv);
  EXPECT_EQ(in->column_names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(RecordFileTest, ColumnsWithoutANameOrWithOneTwiceAreToldApart) {
  const auto in = RecordFile::open(write("a.csv", "a,,a\n1,2,3\n4,5,6\n"), {});
  EXPECT_EQ(in->column_names(), (std::vector<std::string>{"a", "2", "a.3"}));
}

TEST_F(RecordFileTest, NumbersMayHaveSignsAndBeTooSmallForFloatsButNotTooLarge) {
  const auto summary = summary_of(write("a.csv", "i,f,t\n+1,1e-60,1e60\n-2,+2.5,1\n"));
  EXPECT_EQ(summary.features().find("i")->second.int_sum, -1);
  EXPECT_EQ(summary.features().find("f")->second.sum, 2.5);
  EXPECT_EQ(summary.features().find("t")->second.kind, FeatureKind::Bytes);
}

TEST_F(RecordFileTest, ARecordMayGoOverLinesAndAWrongQuoteIsNamed) {
  const auto file = write("a.csv", "id,t\n1,\"two\nlines\"\n2,\"x\"y\n3,z\n");
  EXPECT_ERROR(summary_of(file), DataLoss,
               HasSubstr("a.csv' line 4: field 2 goes on behind its closing quote"));
  EXPECT_EQ(summary_of(file, {.max_bad_records = 1}).records(), 2);
}

TEST_F(RecordFileTest, ALineOfAnotherNumberOfFieldsIsNamed) {
  const auto file = write("a.csv", "|comment\n1,2,3\n4,5\n7,8,9\n1,2,3\n");
  EXPECT_ERROR(summary_of(file), DataLoss, HasSubstr("a.csv' line 1: expected 3 fields, got 1"));
  EXPECT_ERROR(summary_of(file, {.comment = "|"}), DataLoss, HasSubstr("line 3: expected 3 fields, got 2"));
  EXPECT_EQ(summary_of(file, {.comment = "|", .max_bad_records = 1}).records(), 3);
}

TEST_F(RecordFileTest, SummariesCountRangesAndExactSums) {
  const auto file = dir_.path() / "a.tfrecord";
  TfRecordWriter out(file);
  ExampleWriter example;
  const std::int64_t huge = std::int64_t{9'000'000'000'000'000'000};
  for (std::int64_t i = 0; i < 3; ++i) {
    example.add("big", std::vector<std::int64_t>{huge, huge});
    if (i > 0) example.add("f10", std::vector<float>(static_cast<std::size_t>(i), 0.5F));
    example.add("f9", std::vector<std::string_view>{"abc"});
    if (i == 2) example.add("x", std::vector<float>{1});
    if (i == 1) example.add("x", std::vector<std::int64_t>{1});
    out.write(example.finish());
  }
  out.finish();
  const RecordSummary summary = summary_of(file);
  std::vector<std::string> names;
  for (const auto& [name, f] : summary.features()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("big", "f9", "f10", "x"));
  EXPECT_EQ(to_text(summary.features().find("big")->second.int_sum), "54000000000000000000");
  EXPECT_EQ(to_text(-static_cast<__int128>(huge) * 3), "-27000000000000000000");
  EXPECT_EQ(to_text(0), "0");
  const FeatureSummary& f10 = summary.features().find("f10")->second;
  EXPECT_EQ(f10.present, 2);
  EXPECT_EQ(f10.values, 3);
  EXPECT_EQ(f10.fewest, 1);
  EXPECT_EQ(f10.most, 2);
  EXPECT_EQ(f10.sum, 1.5);
  EXPECT_TRUE(summary.features().find("x")->second.mixed);
}

TEST_F(RecordFileTest, CriteoRowsAreTheSameInEveryFormatTheyAreWrittenIn) {
  const auto tsv = dir_.path() / "a.tsv";
  generate_criteo(tsv, {.rows = 500, .seed = 2});
  generate_criteo(dir_.path() / "a.tfrecord.gz",
                  {.rows = 500, .seed = 2, .format = FileFormat::TfRecord, .compression = Compression::Gzip});
  const auto records = convert(tsv, "b.tfrecord", {.format = FileFormat::TfRecord});
  const auto csv = convert(records, "c.csv", {.format = FileFormat::Csv, .columns = [] {
                                                std::vector<std::string> names{"label"};
                                                for (int i = 1; i <= 13; ++i)
                                                  names.push_back("I" + std::to_string(i));
                                                for (int c = 1; c <= 26; ++c)
                                                  names.push_back("C" + std::to_string(c));
                                                return names;
                                              }()});
  const auto back = convert(dir_.path() / "a.tfrecord.gz", "d.tsv", {.format = FileFormat::Criteo});
  EXPECT_EQ(read_text_file(back), read_text_file(tsv));
  const auto expected = read_criteo({tsv}, {.buckets = 5000});
  for (const auto& file : {records, csv, back, dir_.path() / "a.tfrecord.gz"}) {
    const auto table = read_criteo({file}, {.buckets = 5000});
    for (const char* column : {"dense", "sparse", "label"}) {
      const Tensor &got = table->find(column)->data, &want = expected->find(column)->data;
      ASSERT_EQ(got.shape(), want.shape());
      EXPECT_TRUE(std::equal(got.as_bytes().begin(), got.as_bytes().end(), want.as_bytes().begin()))
          << file << " " << column;
    }
  }
}

TEST_F(RecordFileTest, WhatACriteoRowCannotHoldIsNamedAsInTraining) {
  std::string row = "1";
  for (int i = 1; i <= 13; ++i) row += "\t" + std::to_string(i);
  for (int c = 1; c <= 26; ++c) row += "\t0a1b2c3d";
  const auto wrong = [&](const std::string& label, const std::string& first, const std::string& problem) {
    const auto file = write("a.tsv", row + "\n" + label + "\t" + first + row.substr(3) + "\n" + row + "\n");
    EXPECT_ERROR(summary_of(file), DataLoss, HasSubstr("line 2: " + problem));
    EXPECT_ERROR(read_criteo({file}, {.buckets = 10}), DataLoss, HasSubstr("line 2: " + problem));
    EXPECT_EQ(summary_of(file, {.max_bad_records = 1}).records(), 2);
  };
  wrong("2", "1", "label '2' is not 0 or 1");
  wrong("", "1", "label '' is not 0 or 1");
  wrong("0", "x1", "I1 'x1' is not a number");
}

/// Others encode the categories before they write them.
TEST_F(RecordFileTest, CriteoRecordsWhoseCategoriesAreIntegersTrainToo) {
  const auto file = dir_.path() / "encoded.tfrecord";
  TfRecordWriter out(file);
  ExampleWriter example;
  for (std::int64_t row = 0; row < 20; ++row) {
    const float label = row % 2 == 0 ? 1 : 0;
    example.add("label", std::span(&label, 1));
    for (int i = 1; i <= 13; ++i) {
      const float value = static_cast<float>(row) / static_cast<float>(i);
      example.add("I" + std::to_string(i), std::span(&value, 1));
    }
    for (std::int64_t c = 1; c <= 26; ++c) {
      const std::int64_t code = row * c;
      example.add("C" + std::to_string(c), std::span(&code, 1));
    }
    out.write(example.finish());
  }
  out.finish();
  const auto table = read_criteo({file}, {.buckets = 1000});
  ASSERT_EQ(table->rows, 20);
  const auto sparse = table->find("sparse")->data.data<std::int64_t>();
  for (const std::int64_t bucket : sparse) EXPECT_TRUE(bucket > 0 && bucket < 1000);
  EXPECT_NE(sparse[26], sparse[52]) << "other codes, other buckets";
}

TEST_F(RecordFileTest, TextAndQuotedFieldsSurviveTheRoundTrip) {
  const std::string text = "first line\n\n\"quoted\", and more\nlast\n";
  const auto lines = write("a.txt", text);
  const auto packed = convert(lines, "a.tfrecord", {.format = FileFormat::TfRecord});
  EXPECT_EQ(read_text_file(convert(packed, "b.txt", {.format = FileFormat::Text})), text);
  const std::string csv = "name,value\n\"a, \"\"b\"\"\",1\n\" blanks \",2\n\"two\nlines\",3\n";
  EXPECT_EQ(read_text_file(convert(write("a.csv", csv), "b.csv", {.format = FileFormat::Csv})), csv);
}

TEST_F(RecordFileTest, WhatAFormatCannotHoldIsRefused) {
  const auto file = dir_.path() / "a.tfrecord";
  TfRecordWriter out(file);
  ExampleWriter example;
  example.add("a", std::vector<std::string_view>{"two\nlines"});
  out.write(example.finish());
  out.finish();
  EXPECT_EQ(read_text_file(convert(file, "a.csv", {.format = FileFormat::Csv, .columns = {"a"}})),
            "a\n\"two\nlines\"\n");
  EXPECT_ERROR(convert(file, "b.csv", {.format = FileFormat::Csv, .columns = {"b"}}), InvalidArgument,
               HasSubstr("'a' has no column"));
  EXPECT_ERROR(convert(file, "b.txt", {.format = FileFormat::Text}), InvalidArgument, HasSubstr("line end"));
  EXPECT_ERROR(convert(file, "b.idx", {.format = FileFormat::Idx}), InvalidArgument,
               HasSubstr("not written"));
  EXPECT_FALSE(fs::exists(dir_.path() / "b.csv")) << "nothing is left of a file that failed";
}

}  // namespace
}  // namespace braid
