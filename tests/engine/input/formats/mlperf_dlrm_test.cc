// Rows of MLPerf's DLRM-v2: made, read whole, in shares, and in blocks; cut tables; bad files.
#include "engine/input/formats/mlperf_dlrm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/stream/row_blocks.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int32_t> ids_of(const Table& table) {
  const auto ids = table.find("sparse")->data.data<std::int32_t>();
  return {ids.begin(), ids.end()};
}

class MlperfDlrmTest : public testing::Test {
 protected:
  std::filesystem::path made(std::int64_t rows, std::int64_t first = 0, std::uint64_t seed = 7) {
    const auto path = dir_.path() / ("rows" + std::to_string(files_++) + ".bin");
    generate_mlperf_dlrm(path, {.rows = rows, .first_row = first, .seed = seed});
    return path;
  }
  /// Of ten rows, with the number at this place of this row.
  std::filesystem::path with(std::int64_t row, int place, std::int32_t value) {
    const auto path = made(10);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(row * kMlperfRowBytes + place * 4);
    file.write(reinterpret_cast<const char*>(&value), 4);
    return path;
  }
  static std::shared_ptr<Table> all(const std::vector<std::filesystem::path>& files,
                                    const MlperfOptions& options = {}) {
    return stream_mlperf_dlrm(files, options)->next(INT64_MAX);
  }
  static std::string refusal_of(const std::filesystem::path& file, const MlperfOptions& options = {}) {
    return message_of<DataLoss>([&] { all({file}, options); });
  }

  TempDir dir_;
  int files_ = 0;
};

TEST_F(MlperfDlrmTest, ARowIsLabelFloatsAndIds) {
  const auto path = made(3);
  ASSERT_EQ(std::filesystem::file_size(path), 3 * 912U);
  std::ifstream file(path, std::ios::binary);
  std::vector<std::int32_t> words(3 * 228);
  file.read(reinterpret_cast<char*>(words.data()), 3 * 912);
  const auto table = all({path});
  ASSERT_EQ(table->rows, 3);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(table->find("label")->data.data<float>()[r], static_cast<float>(words[r * 228]));
    EXPECT_EQ(std::memcmp(&table->find("dense")->data.data<float>()[r * 13], &words[r * 228 + 1], 52), 0);
    EXPECT_EQ(std::memcmp(&table->find("sparse")->data.data<std::int32_t>()[r * 214], &words[r * 228 + 14],
                          214 * 4),
              0);
  }
  const auto& fields = table->find("sparse")->fields;
  ASSERT_EQ(fields.size(), 26U);
  EXPECT_EQ(fields[20].name, "c20");
  EXPECT_EQ(fields[20].length, 100);
  EXPECT_EQ(fields[20].ids, 40000000);
  EXPECT_FALSE(fields[20].filled);
}

TEST_F(MlperfDlrmTest, ARowIsTheSameWhereverItIsMade) {
  const auto whole = ids_of(*all({made(20)}));
  auto parts = ids_of(*all({made(13), made(7, 13)}));
  EXPECT_EQ(parts, whole);
  EXPECT_NE(ids_of(*all({made(20, 0, 8)})), whole);
}

TEST_F(MlperfDlrmTest, EqualFirstIdsHaveEqualBagsAndPopularOnesAreSmall) {
  const auto table = all({made(4000)});
  const auto ids = ids_of(*table);
  std::map<std::int32_t, std::vector<std::int32_t>> bags;  // of column 20
  std::size_t begin = 0;
  for (int c = 0; c < 20; ++c) begin += static_cast<std::size_t>(kMlperfHots[static_cast<std::size_t>(c)]);
  int small = 0;
  for (std::size_t r = 0; r < 4000; ++r) {
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(r * 214 + begin);
    const std::vector<std::int32_t> bag(at, at + 100);
    const auto [known, is_new] = bags.emplace(bag[0], bag);
    if (!is_new) {
      EXPECT_EQ(known->second, bag);
    }
    small += bag[0] < 400000 ? 1 : 0;
  }
  // The published share of the most popular 1 % of this column is 86 %.
  EXPECT_NEAR(small / 4000.0, 0.86, 0.06);
  EXPECT_GT(bags.size(), 1000U);
}

TEST_F(MlperfDlrmTest, LabelsFollowTheHiddenModel) {
  const auto path = dir_.path() / "labels.bin";
  const MlperfGeneratorResult result = generate_mlperf_dlrm(path, {.rows = 5000, .seed = 1});
  EXPECT_EQ(result.rows, 5000);
  EXPECT_GT(result.auc_ceiling, 0.75);
  EXPECT_LT(result.auc_ceiling, 0.95);
  float positives = 0;
  const auto table = all({path});
  for (const float label : table->find("label")->data.data<float>()) positives += label;
  EXPECT_EQ(static_cast<std::int64_t>(positives), result.positives);
}

TEST_F(MlperfDlrmTest, ArraysHaveTheSameRows) {
  const auto table = all({made(50)});
  generate_mlperf_dlrm_arrays(dir_.path() / "day_0", {.rows = 50, .seed = 7});
  const auto dense = read_text_file(dir_.path() / "day_0_dense.npy");
  EXPECT_EQ(dense.substr(dense.size() - 50 * 52),
            std::string(reinterpret_cast<const char*>(table->find("dense")->data.raw()), 50 * 52));
  const auto labels = read_text_file(dir_.path() / "day_0_labels.npy");
  EXPECT_THAT(labels, HasSubstr("(50, 1)"));
  EXPECT_TRUE(std::filesystem::file_size(dir_.path() / "day_0_sparse_multi_hot.npz") > 50 * 214 * 4);
}

TEST_F(MlperfDlrmTest, CutTablesTakeIdsModuloTheirRows) {
  const auto path = made(40);
  const auto whole = ids_of(*all({path}));
  for (const std::int64_t most : {1LL, 2LL, 3LL, 7LL, 1000LL, 65536LL, 999983LL, 20000000LL, 39999999LL}) {
    const auto cut = ids_of(*all({path}, {.max_rows = most}));
    std::size_t at = 0;
    for (std::size_t r = 0; r < 40; ++r)
      for (int c = 0; c < kMlperfColumns; ++c)
        for (std::int64_t k = 0; k < kMlperfHots[static_cast<std::size_t>(c)]; ++k, ++at)
          ASSERT_EQ(cut[at], whole[at] % mlperf_rows(c, most)) << "column " << c << " at most " << most;
  }
  EXPECT_EQ(all({path}, {.max_rows = 1000})->find("sparse")->fields[0].ids, 1000);
  EXPECT_EQ(all({path}, {.max_rows = 1000})->find("sparse")->fields[5].ids, 3);
}

TEST_F(MlperfDlrmTest, ComesInPartsAndInSharesOfWorkers) {
  const std::vector<std::filesystem::path> files{made(5), made(0), made(2500, 5)};
  const auto whole = ids_of(*all(files));
  std::vector<std::int32_t> parts;
  const auto stream = stream_mlperf_dlrm(files, {});
  EXPECT_EQ(stream->next(0)->rows, 0);
  for (std::shared_ptr<Table> part; (part = stream->next(999))->rows > 0;)
    for (const std::int32_t id : ids_of(*part)) parts.push_back(id);
  EXPECT_EQ(parts, whole);
  const auto odd = all(files, {.read = {.rank = 1, .world = 3}});
  EXPECT_EQ(odd->rows, 835);
  EXPECT_EQ(odd->rows_of_all, 2505);
  EXPECT_EQ(odd->find("sparse")->data.data<std::int32_t>()[214 + 3], whole[4 * 214 + 3]);
}

class MlperfArraysTest : public MlperfDlrmTest {
 protected:
  std::filesystem::path arrays(const std::string& stem, std::int64_t rows, std::int64_t first = 0) const {
    generate_mlperf_dlrm_arrays(dir_.path() / stem, {.rows = rows, .first_row = first, .seed = 7});
    return dir_.path() / (stem + "_labels.npy");
  }
};

TEST_F(MlperfArraysTest, HaveTheRowsOfBinaryFiles) {
  const std::vector<std::filesystem::path> binary{made(2100), made(57, 2100)};
  const std::vector<std::filesystem::path> files{arrays("day_0", 2100), arrays("day_1", 57, 2100)};
  const auto expected = all(binary), got = all(files);
  ASSERT_EQ(got->rows, 2157);
  for (std::size_t c = 0; c < 3; ++c)
    EXPECT_EQ(std::memcmp(got->columns[c].data.raw(), expected->columns[c].data.raw(),
                          expected->columns[c].data.bytes()),
              0)
        << got->columns[c].name;
  std::vector<std::filesystem::path> listed = files;  // as a pattern lists them
  for (const char* ending : {"day_0_dense.npy", "day_0_sparse_multi_hot.npz", "day_1_dense.npy"})
    listed.push_back(dir_.path() / ending);
  EXPECT_EQ(all(listed)->rows, 2157);
  EXPECT_EQ(mlperf_dlrm_bytes(listed), 2157 * 912);

  const auto source = make_row_blocks(
      mlperf_dlrm_indexes(files, 100000),
      [](const ReadOptions& read) { return stream_mlperf_dlrm({}, {.read = read}); }, 0,
      std::make_shared<FileReads>(FileReadOptions{.direct = true}));
  std::vector<BlockPart> parts;
  for (std::size_t b = 0; b < source->blocks().size(); ++b) parts.push_back({b, 0, source->blocks()[b].rows});
  ASSERT_GT(parts.size(), 10U);
  EXPECT_EQ(ids_of(*source->read(parts)), ids_of(*expected));
}

TEST_F(MlperfArraysTest, AreRefusedWhereTheyDoNotGoTogether) {
  const auto file = arrays("a", 10);
  arrays("b", 11);
  std::filesystem::copy_file(dir_.path() / "b_dense.npy", dir_.path() / "a_dense.npy",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_of(file), HasSubstr("a_dense.npy: 11 rows, where the labels have 10"));
  std::filesystem::copy_file(dir_.path() / "b_dense.npy", dir_.path() / "b_labels.npy",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(message_of<InvalidArgument>([&] { all({dir_.path() / "b_labels.npy"}); }),
              HasSubstr("expected int32 [rows, 1]"));
  const auto cut = arrays("c", 10);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 4);
  EXPECT_THAT(refusal_of(cut), HasSubstr("truncated"));
  std::filesystem::remove(dir_.path() / "c_sparse_multi_hot.npz");
  arrays("c", 10);
  std::filesystem::remove(dir_.path() / "c_sparse_multi_hot.npz");
  EXPECT_THAT(message_of<InvalidArgument>([&] { all({cut}); }), HasSubstr("c_sparse_multi_hot.npz"));
}

TEST_F(MlperfDlrmTest, PassesOverRows) {
  const std::vector<std::filesystem::path> files{made(5), made(0), made(2500, 5)};
  const auto whole = ids_of(*all(files));
  for (const std::int64_t bad : {0, 3}) {  // with bad records they are read
    const auto stream = stream_mlperf_dlrm(files, {.read = {.max_bad_records = bad}});
    std::int64_t at = 0;
    for (const std::int64_t n : {0, 3, 1, 700, 1024, 5, 2000}) {
      const std::int64_t skipped = stream->skip(n);
      EXPECT_EQ(skipped, std::min<std::int64_t>(n, 2505 - at));
      at += skipped;
      const auto two = ids_of(*stream->next(2));
      const auto begin = whole.begin() + at * 214;
      EXPECT_EQ(two, std::vector<std::int32_t>(begin, begin + std::ssize(two)));
      EXPECT_EQ(two.size(), static_cast<std::size_t>(std::min<std::int64_t>(2, 2505 - at) * 214));
      at += std::ssize(two) / 214;
    }
    EXPECT_EQ(stream->skip(10), 0);
  }
}

TEST_F(MlperfDlrmTest, BlocksHaveTheRowsOfTheFiles) {
  const std::vector<std::filesystem::path> files{made(100), made(57, 100)};
  const auto whole = ids_of(*all(files));
  const auto source = make_row_blocks(
      mlperf_dlrm_indexes(files, 10000),
      [](const ReadOptions& read) { return stream_mlperf_dlrm({}, {.read = read}); }, 0);
  EXPECT_EQ(rows_of(*source), 157);
  EXPECT_EQ(source->blocks().size(), 10U + 6U);
  EXPECT_EQ(source->columns()->find("sparse")->fields.size(), 26U);
  std::vector<std::int32_t> parts;
  for (std::size_t b = 0; b < source->blocks().size(); ++b) {
    const BlockPart part{b, 0, source->blocks()[b].rows};
    for (const std::int32_t id : ids_of(*source->read({&part, 1}))) parts.push_back(id);
  }
  EXPECT_EQ(parts, whole);
  const BlockPart two[] = {{12, 3, 2}, {1, 9, 1}};
  const auto some = ids_of(*source->read(two));
  ASSERT_EQ(some.size(), 3 * 214U);
  EXPECT_EQ(some[0], whole[(100 + 2 * 10 + 3) * 214]);
  EXPECT_EQ(some[2 * 214 + 5], whole[19 * 214 + 5]);

  std::filesystem::resize_file(files[0], 90 * 912);
  const BlockPart gone{9, 0, 10};
  EXPECT_THAT(message_of<DataLoss>([&] { source->read({&gone, 1}); }), HasSubstr("has 90 rows, had 100"));
}

TEST_F(MlperfDlrmTest, DirectReadsOfBlocksGiveTheSameRows) {
  const std::vector<std::filesystem::path> files{made(3000), made(1057, 3000)};
  const auto whole = ids_of(*all(files));
  const auto reads = std::make_shared<FileReads>(FileReadOptions{.direct = true, .depth = 3});
  const auto source = make_row_blocks(
      mlperf_dlrm_indexes(files, 200000),
      [](const ReadOptions& read) { return stream_mlperf_dlrm({}, {.read = read}); }, 0, reads);
  std::vector<BlockPart> parts;
  for (std::size_t b = 0; b < source->blocks().size(); ++b) parts.push_back({b, 0, source->blocks()[b].rows});
  std::swap(parts[1], parts[3]);
  const auto swapped = ids_of(*source->read(parts));
  std::swap(parts[1], parts[3]);
  EXPECT_EQ(ids_of(*source->read(parts)), whole);
  EXPECT_NE(swapped, whole);
  EXPECT_GE(source->reads().bytes, 2 * 4057 * 912U);
  const BlockPart some{2, 10, 100};
  EXPECT_EQ(
      ids_of(*source->read({&some, 1})),
      std::vector<std::int32_t>(whole.begin() + (2 * 219 + 10) * 214, whole.begin() + (2 * 219 + 110) * 214));
  std::filesystem::resize_file(files[0], 2500 * 912);
  EXPECT_THAT(message_of<DataLoss>([&] { source->read(parts); }), HasSubstr("has 2500 rows, had 2628"));
}

TEST_F(MlperfDlrmTest, RefusesBadFilesWithTheirPlace) {
  const auto cut = made(10);
  std::filesystem::resize_file(cut, 9 * 912 + 100);
  EXPECT_THAT(refusal_of(cut), HasSubstr(cut.string() + ": 8308 bytes are no whole number of rows of 912"));
  EXPECT_THAT(refusal_of(cut), HasSubstr("cut behind row 9"));
  EXPECT_THAT(message_of<DataLoss>([&] { mlperf_dlrm_indexes({cut}, 1000); }),
              HasSubstr("no whole number of rows"));
  EXPECT_THAT(refusal_of(with(4, 0, 2)), HasSubstr("row 4: label 2 is not 0 or 1"));
  EXPECT_THAT(refusal_of(with(4, 0, -1)), HasSubstr("row 4: label -1 is not 0 or 1"));
  EXPECT_THAT(refusal_of(with(9, 3, 0x7F800000)), HasSubstr("row 9: number 2 is not finite"));
  // Column 5 has 3 rows: a value that max_rows cuts is as wrong as one that it does not.
  int place = 14;
  for (int c = 0; c < 5; ++c) place += static_cast<int>(kMlperfHots[static_cast<std::size_t>(c)]);
  for (const std::int64_t most : {0, 2})
    EXPECT_THAT(refusal_of(with(0, place, 3), {.max_rows = most}),
                HasSubstr("row 0: id 0 of column 5 is 3, not in [0, 3)"))
        << most;
  EXPECT_THAT(refusal_of(with(7, 14 + 2, -5), {.max_rows = 10}),
              HasSubstr("row 7: id 2 of column 0 is -5, not in [0, 40000000)"));
  EXPECT_THAT(message_of([&] { all({dir_.path() / "none.bin"}); }), HasSubstr("none.bin"));
}

TEST_F(MlperfDlrmTest, SkipsSoManyBadRows) {
  const auto file = with(4, 0, 2);
  const auto table = all({file}, {.read = {.max_bad_records = 1}});
  EXPECT_EQ(table->rows, 9);
  EXPECT_EQ(table->skipped, 1);
  const auto kept = all({file}, {.read = {.max_bad_records = 1, .keep_bad_records = true}});
  EXPECT_EQ(kept->rows, 10);
  EXPECT_THAT(kept->bad_rows, ElementsAre(4));
  EXPECT_EQ(kept->find("sparse")->data.data<std::int32_t>()[4 * 214], 0);
  // Labels that nobody looks at may be anything.
  EXPECT_EQ(all({file}, {.read = {.ignored = {"label"}}})->find("label")->data.data<float>()[4], 0);
}

}  // namespace
}  // namespace braid
