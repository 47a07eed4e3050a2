// Indexes of text and TFRecord files, and the rows that are read by them: those of the whole files.
#include "engine/input/stream/row_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/sniff.h"
#include "engine/input/formats/tfrecord.h"
#include "engine/input/generators/criteo_generator.h"
#include "engine/input/stream/streamed_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<ColumnSpec> kColumns{{.name = "x", .kind = ColumnKind::Numeric},
                                       {.name = "word", .kind = ColumnKind::Categorical, .buckets = 1000},
                                       {.name = "y", .kind = ColumnKind::Label}};

enum class Kind { Csv, QuotedCsv, CommentedCsv, Text, TfRecord, Criteo, CriteoExamples, Gzip };

struct Source {
  std::vector<std::filesystem::path> files;
  MakeRowStream make;
  std::function<BlockIndexOptions(const std::filesystem::path&)> options;
};

class RowBlocksTest : public testing::TestWithParam<Kind> {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.path() / name, std::ios::binary) << text;
    return dir_.path() / name;
  }

  /// `rows` records a file.
  Source make(Kind kind, std::int64_t rows, int files = 2, std::uint64_t block_bytes = 200) {
    Source source;
    BlockIndexOptions options{.block_bytes = block_bytes};
    CsvOptions csv{.header = true, .columns = kColumns};
    if (kind == Kind::CommentedCsv) options.comment = csv.comment = "#";
    for (int f = 0; f < files; ++f) {
      const std::string name = "part-" + std::to_string(f);
      std::string text = kind == Kind::Text ? "" : "x,word,y\n";
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::string number = std::to_string(1000 * f + r);
        if (kind == Kind::Text) text += "line " + number + (r % 5 == 0 ? "\r\n" : "\n");
        if (kind == Kind::Csv || kind == Kind::Gzip)
          text += number + ",word" + number + "," + std::to_string(r % 2) + (r % 7 == 0 ? "\n\n" : "\n");
        if (kind == Kind::QuotedCsv)
          text += number + ",\"a\nb \"\"" + number + "\"\"\"," + std::to_string(r % 2) + "\n";
        if (kind == Kind::CommentedCsv) text += number + ",w" + number + ",1\n# no record\n";
      }
      if (kind == Kind::TfRecord) {
        TfRecordWriter out(dir_.path() / name);
        for (std::int64_t r = 0; r < rows; ++r) {
          ExampleWriter example;
          const std::vector<float> x{static_cast<float>(1000 * f + r)};
          const std::vector<std::int64_t> y{r % 2};
          example.add("x", std::span<const float>(x));
          example.add("y", std::span<const std::int64_t>(y));
          out.write(example.finish());
        }
        out.finish();
        source.files.push_back(dir_.path() / name);
      } else if (kind == Kind::Criteo || kind == Kind::CriteoExamples) {
        CriteoGeneratorOptions generator{.seed = 3};
        generator.rows = rows;
        generator.first_row = f * rows;
        if (kind == Kind::CriteoExamples) generator.format = FileFormat::TfRecord;
        generate_criteo(dir_.path() / name, generator);
        source.files.push_back(dir_.path() / name);
      } else if (kind == Kind::Gzip) {
        gzFile out = gzopen((dir_.path() / name).c_str(), "wb");
        gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
        gzclose(out);
        source.files.push_back(dir_.path() / name);
      } else {
        source.files.push_back(write(name, text));
      }
    }
    if (kind == Kind::TfRecord) {
      options.layout = RecordLayout::TfRecord;
      source.make = [](const ReadOptions& read) {
        return stream_tfrecord({}, {.columns = kColumns, .read = read});
      };
    } else if (kind == Kind::Criteo || kind == Kind::CriteoExamples) {
      options.layout = kind == Kind::Criteo ? RecordLayout::Fields : RecordLayout::TfRecord;
      options.separator = '\t';
      options.is_header = [](std::string_view line) { return line.starts_with("label"); };
      source.make = [](const ReadOptions& read) { return stream_criteo({}, {.buckets = 500, .read = read}); };
    } else if (kind == Kind::Text) {
      options.layout = RecordLayout::Lines;
      source.make = [](const ReadOptions& read) {
        return stream_text_lines(
            {}, {.columns = {{.name = "line", .kind = ColumnKind::Categorical, .buckets = 1000},
                             {.name = "line", .kind = ColumnKind::Label, .positive = "line 1"}},
                 .read = read});
      };
    } else {
      options.layout = RecordLayout::Fields;
      options.is_header = [](std::string_view) { return true; };
      source.make = [csv](const ReadOptions& read) {
        CsvOptions with = csv;
        with.read = read;
        return stream_csv({}, with);
      };
    }
    source.options = [options](const std::filesystem::path&) { return options; };
    return source;
  }
  static std::shared_ptr<BlockSource> blocks_of(const Source& source, std::int64_t bad = 0,
                                                std::shared_ptr<FileReads> reads = nullptr) {
    return make_row_blocks(block_indexes(source.files, source.options), source.make, bad, std::move(reads));
  }
  static std::shared_ptr<const Table> whole(const Source& source) {
    const auto stream = source.make({});
    std::vector<FilePiece> pieces(source.files.begin(), source.files.end());
    stream->begin(std::move(pieces));
    return stream->next(INT64_MAX);
  }
  static void expect_rows(const Table& got, const Table& all, std::int64_t first) {
    ASSERT_EQ(got.columns.size(), all.columns.size());
    for (std::size_t c = 0; c < got.columns.size(); ++c) {
      const std::size_t row = all.columns[c].data.bytes() / static_cast<std::size_t>(all.rows);
      EXPECT_EQ(std::memcmp(got.columns[c].data.raw(),
                            all.columns[c].data.raw() + static_cast<std::size_t>(first) * row,
                            static_cast<std::size_t>(got.rows) * row),
                0)
          << got.columns[c].name;
    }
  }

  TempDir dir_;
};

TEST_P(RowBlocksTest, BlocksHaveTheRowsOfTheWholeFiles) {
  const Source source = make(GetParam(), 100);
  const auto blocks = blocks_of(source);
  const auto all = whole(source);
  ASSERT_EQ(rows_of(*blocks), all->rows);
  EXPECT_EQ(all->rows, 200);
  EXPECT_EQ(blocks->columns()->columns.size(), all->columns.size());
  EXPECT_GT(blocks->blocks().size(), GetParam() == Kind::Gzip ? 1U : 8U);
  std::vector<BlockPart> parts;
  std::int64_t before = 0;
  for (std::size_t b = 0; b < blocks->blocks().size(); ++b) {
    const std::int64_t rows = blocks->blocks()[b].rows;
    const BlockPart one{b, 0, rows};
    expect_rows(*blocks->read(std::span(&one, 1)), *all, before);
    if (rows > 1) {
      const BlockPart inner{b, 1, rows - 1};
      const auto read = blocks->read(std::span(&inner, 1));
      EXPECT_EQ(read->rows, rows - 1);
      expect_rows(*read, *all, before + 1);
    }
    parts.push_back(one);
    before += rows;
  }
  expect_rows(*blocks->read(parts), *all, 0);
}

TEST_P(RowBlocksTest, DirectReadsGiveTheSameRows) {
  const Source source = make(GetParam(), 500, 2, 20000);
  const auto all = whole(source);
  const auto blocks =
      blocks_of(source, 0, std::make_shared<FileReads>(FileReadOptions{.direct = true, .chunk_bytes = 4096}));
  std::int64_t before = 0;
  for (std::size_t b = 0; b < blocks->blocks().size(); ++b) {
    const BlockPart one{b, 0, blocks->blocks()[b].rows};
    expect_rows(*blocks->read(std::span(&one, 1)), *all, before);
    before += one.rows;
  }
  EXPECT_EQ(before, 1000);
  if (GetParam() == Kind::Gzip) return;  // which is read from its front
  EXPECT_GT(blocks->reads().bytes, std::filesystem::file_size(source.files[0]));
}

TEST_P(RowBlocksTest, StreamsWithoutShuffleAreTheTablesBatches) {
  const Source source = make(GetParam(), 100);
  const auto all = whole(source);
  const std::string column = all->columns[0].name;
  BatchOptions options{.global_batch = 16, .shuffle = false};
  for (const bool carries : {false, true}) {
    options.carry_remainder = carries;
    Batcher table(all, {column}, options);
    Batcher stream(std::make_shared<StreamedRows>(blocks_of(source), StreamedRowsOptions{}, options),
                   {column}, options);
    EXPECT_EQ(stream.batches_per_epoch(), table.batches_per_epoch());
    for (std::uint64_t t = 0; t < 30; ++t) {
      const Batch one = table.make(t), other = stream.make(t);
      ASSERT_EQ(one.rows, other.rows);
      EXPECT_EQ(std::memcmp(one.tensors[0].raw(), other.tensors[0].raw(), one.tensors[0].bytes()), 0) << t;
    }
  }
}

TEST_P(RowBlocksTest, KeptIndexesAreUsedAndStaleOnesMadeAgain) {
  Source source = make(GetParam(), 50, 1);
  const auto first = block_indexes(source.files, source.options);
  const auto path = index_path(source.files[0], source.options(source.files[0]));
  ASSERT_TRUE(std::filesystem::exists(path));
  const std::string kept = read_file(path);
  EXPECT_EQ(block_indexes(source.files, source.options)[0].rows(), 50);
  EXPECT_EQ(read_file(path), kept);
  write_file_atomically(path, kept.substr(0, kept.size() / 2));
  EXPECT_EQ(block_indexes(source.files, source.options)[0].rows(), 50) << "a damaged one is made again";
  EXPECT_EQ(read_file(path), kept);
  source = make(GetParam(), 60, 1);
  EXPECT_EQ(block_indexes(source.files, source.options)[0].rows(), 60) << "the file has changed";
}

/// Without packed files, which are read from their front.
class UnpackedRowBlocksTest : public RowBlocksTest {};

TEST_P(UnpackedRowBlocksTest, FilesThatChangeUnderAStreamAreNamed) {
  const Source source = make(GetParam(), 50, 1);
  const auto blocks = blocks_of(source);
  std::string text = read_file(source.files[0]);
  const BlockPart last{blocks->blocks().size() - 1, 0, blocks->blocks().back().rows};
  std::filesystem::resize_file(source.files[0], text.size() - 3);
  EXPECT_ERROR(blocks->read(std::span(&last, 1)), DataLoss, HasSubstr(source.files[0].string()));
  EXPECT_ERROR(blocks->read(std::span(&last, 1)), DataLoss, HasSubstr("truncated"));
  text[text.size() - 5] ^= 1;
  std::ofstream(source.files[0], std::ios::binary) << text;
  EXPECT_ERROR(blocks->read(std::span(&last, 1)), DataLoss, HasSubstr("was changed"));
}

INSTANTIATE_TEST_SUITE_P(Formats, RowBlocksTest,
                         testing::Values(Kind::Csv, Kind::QuotedCsv, Kind::CommentedCsv, Kind::Text,
                                         Kind::TfRecord, Kind::Criteo, Kind::CriteoExamples, Kind::Gzip));
INSTANTIATE_TEST_SUITE_P(Formats, UnpackedRowBlocksTest,
                         testing::Values(Kind::Csv, Kind::QuotedCsv, Kind::CommentedCsv, Kind::Text,
                                         Kind::TfRecord, Kind::Criteo, Kind::CriteoExamples));

class BadRowsTest : public RowBlocksTest {};

TEST_F(BadRowsTest, ABadRecordIsItsNeighbourAndOneTooManyEndsTheStream) {
  Source source = make(Kind::Csv, 0, 0);
  source.files = {write("a.csv", "x,word,y\n1,a,0\nbad,b,1\n3,c,1\n4,d,zero\n")};
  const auto none = blocks_of(source, 0);
  const BlockPart all{0, 0, 4};
  EXPECT_ERROR(none->read(std::span(&all, 1)), DataLoss, HasSubstr("line 3"));
  const auto two = blocks_of(source, 2);
  for (int again = 0; again < 3; ++again) {
    const auto table = two->read(std::span(&all, 1));
    EXPECT_THAT(table->find("dense")->data.data<float>(), ElementsAre(1, 1, 3, 3)) << "each is counted once";
  }
  const auto one = blocks_of(source, 1);
  EXPECT_ERROR(one->read(std::span(&all, 1)), DataLoss, HasSubstr("2 bad records, at most 1"));
}

TEST_F(BadRowsTest, LinesOfErrorsAreThoseOfTheFile) {
  Source source = make(Kind::Csv, 0, 0);
  std::string text = "x,word,y\n";
  for (int r = 0; r < 60; ++r) text += r == 50 ? "nothing,w,1\n" : "1,w,1\n";
  source.files = {write("a.csv", text)};
  source.options = [options = source.options](const std::filesystem::path& file) {
    BlockIndexOptions small = options(file);
    small.block_bytes = 64;
    return small;
  };
  const auto blocks = blocks_of(source);
  ASSERT_GT(blocks->blocks().size(), 4U);
  const auto read_all = [&] {
    for (std::size_t b = 0; b < blocks->blocks().size(); ++b) {
      const BlockPart part{b, 0, blocks->blocks()[b].rows};
      blocks->read(std::span(&part, 1));
    }
  };
  EXPECT_ERROR(read_all(), DataLoss, HasSubstr("line 52"));
}

TEST_F(BadRowsTest, LargePackedFilesAreUnpackedOnce) {
  Source source = make(Kind::Csv, 0, 0, 1 << 20);
  std::string text = "x,word,y\n", lines;
  for (int r = 0; r < 1000; ++r) lines += std::to_string(r) + ",word and some more text,1\n";
  gzFile out = gzopen((dir_.path() / "big.csv.gz").c_str(), "wb1");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  for (int k = 0; k < 1500; ++k) gzwrite(out, lines.data(), static_cast<unsigned>(lines.size()));
  gzclose(out);
  source.files = {dir_.path() / "big.csv.gz"};
  source.options = [options = source.options, this](const std::filesystem::path& file) {
    BlockIndexOptions with = options(file);
    with.directory = dir_.path() / "indexes";
    return with;
  };
  const auto blocks = blocks_of(source);
  EXPECT_EQ(rows_of(*blocks), 1500000);
  EXPECT_GT(blocks->blocks().size(), 30U);
  EXPECT_THAT(blocks->describe(0), HasSubstr(".unpacked"));
}

}  // namespace
}  // namespace braid
