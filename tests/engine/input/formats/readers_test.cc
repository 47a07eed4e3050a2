#include "engine/input/formats/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <fstream>
#include <map>

#include "base/files.h"
#include "base/init.h"
#include "engine/input/generators/criteo_generator.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ReadersTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("braid_readers_" + std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return dir_ / name;
  }
  fs::path write_gz(const std::string& name, const std::string& text) {
    gzFile out = gzopen((dir_ / name).c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
    return dir_ / name;
  }
  fs::path dir_;
};

std::string idx_images(int count) {
  std::string bytes{0, 0, 8, 3, 0, 0, 0, static_cast<char>(count), 0, 0, 0, 2, 0, 0, 0, 2};
  for (int i = 0; i < 4 * count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}
std::string idx_labels(int count) {
  std::string bytes{0, 0, 8, 1, 0, 0, 0, static_cast<char>(count)};
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}

TEST_F(ReadersTest, IdxPlainAndGzipAgree) {
  auto plain = read_idx(write("i", idx_images(3)), write("l", idx_labels(3)));
  auto packed = read_idx(write_gz("i.gz", idx_images(3)), write_gz("l.gz", idx_labels(3)));
  ASSERT_EQ(plain->rows, 3);
  EXPECT_EQ(plain->find("image")->data.shape(), (Shape{3, 2, 2, 1}));
  EXPECT_EQ(plain->find("image")->data.data<std::uint8_t>()[5], 5);
  EXPECT_EQ(packed->find("label")->data.data<std::int64_t>()[2], 2);
}

TEST_F(ReadersTest, IdxOfOtherTypesAndRanksBecomesFloats) {
  const std::string shorts("\0\0\x0B\x02\0\0\0\x02\0\0\0\x02\0\x05\xFF\xFF\0\0\x01\0", 20);
  const std::string ints("\0\0\x0C\x01\0\0\0\x02\0\0\x01\0\0\0\0\x03", 16);
  auto table = read_idx(write("i", shorts), write("l", ints));
  EXPECT_EQ(table->find("image")->data.shape(), (Shape{2, 2}));
  EXPECT_THAT(table->find("image")->data.data<float>(), testing::ElementsAre(5, -1, 0, 256));
  EXPECT_EQ(table->find("image")->scale, 1.0F);
  EXPECT_THAT(table->find("label")->data.data<std::int64_t>(), testing::ElementsAre(256, 3));
  const std::string color(
      "\0\0\x08\x04\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\x03"
      "abcdef",
      26);
  EXPECT_EQ(read_idx(write("c", color), dir_ / "l")->find("image")->data.shape(), (Shape{2, 1, 1, 3}));
  EXPECT_THAT(message_of<DataLoss>([&] { read_idx(dir_ / "l", dir_ / "i"); }),
              testing::AllOf(HasSubstr("l'"), HasSubstr("int32 of rank 1 where images are expected")));
  EXPECT_THAT(message_of<DataLoss>([&] { read_idx(dir_ / "i", dir_ / "c"); }),
              HasSubstr("a list of integers"));
}

TEST_F(ReadersTest, IdxDamageIsNamed) {
  auto labels = write("l", idx_labels(3));
  EXPECT_THAT(message_of<DataLoss>([&] { read_idx(write("short", idx_images(3).substr(0, 20)), labels); }),
              testing::AllOf(HasSubstr("short"), HasSubstr("promises 12"), HasSubstr("has 4")));
  EXPECT_THAT(message_of<DataLoss>([&] { read_idx(write("magic", "abcdefghijklmnopqrst"), labels); }),
              HasSubstr("magic number"));
  EXPECT_THAT(message_of<DataLoss>([&] { read_idx(write("two", idx_images(2)), labels); }),
              HasSubstr("2 images"));
  const std::string nothing("\0\0\x08\x02\xff\xff\xff\xff\0\0\0\0", 12);
  EXPECT_THAT(message_of<DataLoss>([&] { read_idx(write("nothing", nothing), labels); }),
              HasSubstr("the header promises 4294967295 items of no elements"));
  EXPECT_THAT(message_of([&] { read_idx(dir_ / "absent", labels); }), HasSubstr("No such file"));
  const std::string gz = read_file(write_gz("full.gz", std::string(100000, 'x')));
  EXPECT_THAT(message_of<DataLoss>([&] { read_text_file(write("cut.gz", gz.substr(0, gz.size() / 2))); }),
              HasSubstr("cut.gz"));
}

CsvOptions schema() {
  CsvOptions options;
  options.columns = {{.name = "age", .kind = ColumnKind::Numeric, .shift = 10, .scale = 2},
                     {.name = "job", .kind = ColumnKind::Categorical, .buckets = 50},
                     {.name = "skip"},
                     {.name = "y", .kind = ColumnKind::Label, .positive = ">50K"}};
  return options;
}

TEST_F(ReadersTest, CsvFollowsItsSchema) {
  auto options = schema();
  options.comment = "|";
  auto table = read_csv(
      {write("a.csv", "|comment\n14, clerk, x, >50K\n?,\"a, \"\"b\"\"\",,<=50K.\r\n\n12,clerk,z,>50K.")},
      options);
  ASSERT_EQ(table->rows, 3);
  EXPECT_THAT(table->find("dense")->data.data<float>(), testing::ElementsAre(2.0F, -5.0F, 1.0F));
  EXPECT_THAT(table->find("label")->data.data<float>(), testing::ElementsAre(1.0F, 0.0F, 1.0F));
  auto sparse = table->find("sparse")->data.data<std::int64_t>();
  EXPECT_EQ(sparse[0], sparse[2]);
  EXPECT_EQ(sparse[0], static_cast<std::int64_t>(stable_hash("job=clerk") % 50));
  EXPECT_EQ(sparse[1], static_cast<std::int64_t>(stable_hash("job=a, \"b\"") % 50));
}

TEST_F(ReadersTest, CsvErrorsNameFileLineAndColumn) {
  auto bad = write("bad.csv", "1,a,b,>50K\noops,a,b,>50K\n1,a\n");
  EXPECT_THAT(message_of<DataLoss>([&] { read_csv({bad}, schema()); }),
              testing::AllOf(HasSubstr("bad.csv' line 2"), HasSubstr("(age)"), HasSubstr("'oops'")));
  auto options = schema();
  options.read.max_bad_records = 1;
  EXPECT_THAT(message_of<DataLoss>([&] { read_csv({bad}, options); }),
              testing::AllOf(HasSubstr("line 3"), HasSubstr("expected 4 fields, got 2")));
  options.read.max_bad_records = 2;
  auto table = read_csv({bad}, options);
  EXPECT_EQ(table->rows, 1);
  EXPECT_EQ(table->skipped, 2);
  EXPECT_EQ(table->find("dense")->data.elements(), 1) << "a refused record leaves nothing behind";
}

TEST_F(ReadersTest, CsvRecordsMayGoOverLinesAndBeginBehindAByteOrderMark) {
  auto options = schema();
  const std::string text =
      "\xEF\xBB\xBF"
      "14,\"a\nb\",x,>50K\r\n16,c,\"\r\n\",<=50K";
  auto table = read_csv({write("a.csv", text)}, options);
  ASSERT_EQ(table->rows, 2);
  EXPECT_EQ(table->find("sparse")->data.data<std::int64_t>()[0],
            static_cast<std::int64_t>(stable_hash("job=a\nb") % 50));
  EXPECT_THAT(message_of<DataLoss>([&] { read_csv({write("b.csv", text + "\n18,\"d")}, options); }),
              HasSubstr("b.csv' line 5: the quote of field 2 is not closed"));
  options.read.max_bad_records = 1;
  EXPECT_EQ(read_csv({dir_ / "b.csv"}, options)->rows, 2);
}

TEST_F(ReadersTest, ColumnsAreFoundByTheNamesOfTheHeader) {
  auto options = schema();
  options.header = true;
  auto expected = read_csv({write("a.csv", "age,job,skip,y\n14,clerk,x,>50K\n")}, options);
  for (const char* text : {"y,more,job,age\n>50K,9,clerk,14\n", "a,b,c,d\n14,clerk,x,>50K\n"}) {
    auto table = read_csv({write("b.csv", text)}, options);
    EXPECT_EQ(table->find("dense")->data.data<float>()[0], expected->find("dense")->data.data<float>()[0]);
    EXPECT_EQ(table->find("label")->data.data<float>()[0], 1.0F);
    EXPECT_EQ(table->find("sparse")->data.data<std::int64_t>()[0],
              expected->find("sparse")->data.data<std::int64_t>()[0]);
  }
  options.comment = "#";
  EXPECT_EQ(read_csv({write("c.csv", "# made by hand\nage,job,skip,y\n14,clerk,x,>50K\n")}, options)->rows,
            1);
  EXPECT_THAT(message_of([&] { read_csv({write("d.csv", "age,work,y\n1,2,3\n")}, options); }),
              HasSubstr("d.csv' line 1: the header has no column 'job', but age, work, y"));
  EXPECT_THAT(message_of([&] { read_csv({write("e.csv", "age,job,y,job\n1,2,3,4\n")}, options); }),
              HasSubstr("e.csv' line 1: the header has two columns 'job'"));
  EXPECT_THAT(
      message_of<DataLoss>([&] { read_csv({write("f.csv", "y,job,age\n>50K,clerk,old\n")}, options); }),
      HasSubstr("f.csv' line 2: column 3 (age): 'old' is not a number"));
}

TEST_F(ReadersTest, CriteoRowsKeepMissingAndDirtyFields) {
  std::string row = "1\t5\t\t-3";
  for (int i = 3; i < 13; ++i) row += "\t0";
  for (int c = 0; c < 26; ++c) row += c == 1 ? "\t" : c == 2 ? "\t1E+05" : "\t68fd1e64";
  auto table = read_criteo({write("d.tsv", row + "\r\n" + row)}, {.buckets = 1000});
  ASSERT_EQ(table->rows, 2);
  auto dense = table->find("dense")->data.data<float>();
  EXPECT_FLOAT_EQ(dense[0], std::log1p(5.0F));
  EXPECT_EQ(dense[1], 0.0F);
  EXPECT_EQ(dense[2], 0.0F);
  auto sparse = table->find("sparse")->data.data<std::int64_t>();
  EXPECT_EQ(sparse[1], 0) << "missing is bucket 0";
  EXPECT_NE(sparse[0], sparse[3]) << "equal hashes of two columns differ";
  for (auto bucket : sparse) EXPECT_TRUE(bucket >= 0 && bucket < 1000);
}

/// What files of others have: a header, CRLF, a hash that a spreadsheet took for a number, empty fields, and
/// no line end after the last row.
TEST_F(ReadersTest, DirtyCriteoRowsLoad) {
  std::string header = "label", row = "1", last = "0";
  for (int i = 1; i <= 13; ++i) {
    header += ",I" + std::to_string(i);
    row += i % 3 == 0 ? "," : "," + std::to_string(i) + ".0";
    last += ",";
  }
  for (int c = 1; c <= 26; ++c) {
    header += ",C" + std::to_string(c);
    row += c == 5 ? ",1E+05" : ",0a1b2c3d";
    last += c == 26 ? ",ff" : ",";
  }
  const auto table =
      read_criteo({write("dirty.csv", header + "\r\n" + row + "\r\n" + last)}, {.buckets = 100});
  ASSERT_EQ(table->rows, 2);
  EXPECT_THAT(table->find("label")->data.data<float>(), testing::ElementsAre(1, 0));
  const auto sparse = table->find("sparse")->data.data<std::int64_t>();
  EXPECT_NE(sparse[4], 0) << "the text of a number is a category";
  EXPECT_EQ(sparse[26], 0);
  EXPECT_NE(sparse[51], 0);
  const auto clean =
      read_criteo({write("clean.csv", header + "\n" + row + "\n" + last + "\n")}, {.buckets = 100});
  EXPECT_THAT(clean->find("sparse")->data.data<std::int64_t>(), testing::ElementsAreArray(sparse));
}

TEST_F(ReadersTest, GeneratedCriteoIsReproducibleAndLearnable) {
  auto a = generate_criteo(dir_ / "a.tsv", {.rows = 3000, .first_row = 0, .seed = 4});
  generate_criteo(dir_ / "b.tsv", {.rows = 1000, .first_row = 2000, .seed = 4});
  const std::string whole = read_text_file(dir_ / "a.tsv"), part = read_text_file(dir_ / "b.tsv");
  EXPECT_TRUE(whole.ends_with(part)) << "rows are numbered";
  EXPECT_GT(a.auc_ceiling, 0.75);
  EXPECT_LT(a.auc_ceiling, 0.95);
  EXPECT_EQ(read_criteo({dir_ / "a.tsv"}, {})->rows, 3000);
}

/// All columns of the parts of a stream one after the other, as text, with keys.
std::string all_of(RowStream& rows, std::int64_t most) {
  std::map<std::string, std::string> columns;
  std::string keys;
  for (;;) {
    const auto part = rows.next(most);
    for (const TableColumn& column : part->columns)
      columns[column.name].append(reinterpret_cast<const char*>(column.data.raw()), column.data.bytes());
    for (const std::string& key : part->keys) keys += key + ";";
    for (const std::int64_t row : part->bad_rows) keys += "bad " + std::to_string(row) + ";";
    if (part->rows == 0) break;
    EXPECT_LE(part->rows, most);
  }
  for (const auto& [name, bytes] : columns) keys += name + "=" + bytes;
  return keys;
}

TEST_F(ReadersTest, AStreamOfRowsIsTheTableInParts) {
  CsvOptions csv;
  csv.columns = {{.name = "id"},
                 {.name = "x", .kind = ColumnKind::Numeric},
                 {.name = "c", .kind = ColumnKind::Categorical, .buckets = 7},
                 {.name = "y", .kind = ColumnKind::Label}};
  csv.read.key_column = "id";
  csv.read.group_column = "c";
  const std::vector<fs::path> files{write("a.csv", "u,1,a,0\nv,2,b,1\nw,3,a,1\n"),
                                    write("b.csv", "x,4,c,0\n")};
  const auto whole = stream_csv(files, csv);
  const std::string expected = all_of(*whole, 100);
  EXPECT_THAT(expected, testing::StartsWith("u;v;w;x;"));
  for (const std::int64_t most : {1, 2, 3})
    EXPECT_EQ(all_of(*stream_csv(files, csv), most), expected) << most;
  EXPECT_EQ(stream_csv({}, csv)->next(0)->find("dense")->data.shape(), (Shape{0, 1}));

  const auto criteo = dir_ / "c.tsv";
  generate_criteo(criteo, {.rows = 50, .first_row = 0, .seed = 4});
  EXPECT_EQ(all_of(*stream_criteo({criteo}, {}), 7), all_of(*stream_criteo({criteo}, {}), 50));
  const auto images = write("i", idx_images(5)), labels = write("l", idx_labels(5));
  EXPECT_EQ(all_of(*stream_idx(images, labels), 2), all_of(*stream_idx(images, labels), 5));
}

TEST_F(ReadersTest, IgnoredColumnsMayBeAbsentAndBadRecordsMayStay) {
  CsvOptions csv;
  csv.columns = {{.name = "y", .kind = ColumnKind::Label}, {.name = "x", .kind = ColumnKind::Numeric}};
  csv.read.ignored = {"label"};
  csv.read.keep_bad_records = true;
  csv.read.max_bad_records = 1;
  for (const std::string text : {"5\nbad\n7\n", "wrong,5\n,bad\n1,7\n"}) {
    const auto table = stream_csv({write("a.csv", text)}, csv)->next(10);
    ASSERT_EQ(table->rows, 3) << text;
    EXPECT_THAT(table->find("dense")->data.data<float>(), testing::ElementsAre(5, 0, 7));
    EXPECT_THAT(table->find("label")->data.data<float>(), testing::ElementsAre(0, 0, 0));
    EXPECT_THAT(table->bad_rows, testing::ElementsAre(1));
    EXPECT_EQ(table->skipped, 1);
  }
  csv.header = true;
  EXPECT_EQ(stream_csv({write("h.csv", "z,x\n1,2\n")}, csv)->next(10)->rows, 1);
  csv.read.key_column = "k";
  EXPECT_THAT(message_of([&] { stream_csv({write("h.csv", "z,x\n1,2\n")}, csv)->next(10); }),
              HasSubstr("has no column 'k'; its columns: z, x"));
}

}  // namespace
}  // namespace braid
