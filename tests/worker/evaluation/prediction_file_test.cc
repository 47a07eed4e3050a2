#include "worker/evaluation/prediction_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PredictionFileTest : public testing::Test {
 protected:
  TempDir dir_;
};

TEST_F(PredictionFileTest, LinesHaveKeysInQuotesWhereTheyNeedThem) {
  const auto file = dir_.path() / "p.csv";
  {
    const auto out = PredictionFile::create(file, "user, id", {{"class", true, {"no", "yes, sure"}}, {"p"}});
    out->add("a\"b", std::vector<double>{1, 0.1F});
    out->add("c", std::vector<double>{0, 1e-7});
    out->add("bad", {});
    EXPECT_FALSE(std::filesystem::exists(file)) << "before it is whole";
    out->finish();
  }
  EXPECT_EQ(read_file(file), "\"user, id\",class,p\n\"a\"\"b\",\"yes, sure\",0.1\nc,no,1e-07\nbad,,\n");
  const auto tabs = dir_.path() / "p.tsv";
  const auto out = PredictionFile::create(tabs, "row", {{"p"}});
  out->add("a,b", std::vector<double>{0.5});
  out->finish();
  EXPECT_EQ(read_file(tabs), "row\tp\na,b\t0.5\n");
}

TEST_F(PredictionFileTest, WhatIsNotFinishedLeavesNothing) {
  { PredictionFile::create(dir_.path() / "p.csv", "row", {{"p"}})->add("1", std::vector<double>{0.5}); }
  EXPECT_TRUE(list_directory(dir_.path()).empty());
  EXPECT_ERROR(PredictionFile::create(dir_.path() / "p.txt", "row", {{"p"}}), InvalidArgument,
               HasSubstr("does not say a format"));
}

TEST_F(PredictionFileTest, AnArrayHasAsManyRowsAsWereAdded) {
  for (const std::int64_t rows : {0, 3, 400000}) {
    const auto file = dir_.path() / "p.npy";
    const auto out = PredictionFile::create(file, "row", {{"class", true}, {"p_0"}, {"p_1"}});
    for (std::int64_t r = 0; r < rows; ++r) {
      if (r == 1)
        out->add("", {});
      else
        out->add("", std::vector<double>{1, 0.25, static_cast<double>(r)});
    }
    out->finish();
    const std::string bytes = read_file(file);
    const NpyArray array = parse_npy(std::as_bytes(std::span(bytes)), file.string());
    ASSERT_THAT(array.shape, ElementsAre(rows, 2));
    std::vector<float> values(array.data.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
    if (rows == 0) continue;
    EXPECT_EQ(values[1], 0);
    EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[3]));
    EXPECT_EQ(values.back(), static_cast<float>(rows - 1));
  }
}

NpyArray array_of(const ZipReader& zip, const std::string& name) {
  for (const ZipEntry& entry : zip.entries())
    if (entry.name == name + ".npy") return parse_npy(zip.read(entry), name);
  throw InvalidArgument("no array '" + name + "'");
}

template <class T>
std::vector<T> values_of(const NpyArray& array) {
  std::vector<T> values(array.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

std::vector<std::string> texts_of(const NpyArray& array) {
  const auto rows = static_cast<std::size_t>(array.shape.at(0));
  std::vector<std::int64_t> offsets(rows + 1);
  std::memcpy(offsets.data(), array.data.data(), offsets.size() * sizeof(std::int64_t));
  const char* text = reinterpret_cast<const char*>(array.data.data() + offsets.size() * sizeof(std::int64_t));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < rows; ++r) texts.emplace_back(text + offsets[r], text + offsets[r + 1]);
  return texts;
}

TEST_F(PredictionFileTest, AnArchiveHasAnArrayForEachColumn) {
  const auto file = dir_.path() / "p.npz";
  {
    const auto out =
        PredictionFile::create(file, "row", {{"class", true}, {"kind", true, {"no", "yes"}}, {"p"}});
    out->add("0", std::vector<double>{3, 1, 0.5});
    out->add("1", {});
    out->add("2", std::vector<double>{0, 0, 0.25});
    EXPECT_FALSE(std::filesystem::exists(file)) << "before it is whole";
    out->finish();
  }
  const ZipReader zip(file);
  EXPECT_EQ(zip.entries().size(), 4U);
  EXPECT_THAT(values_of<std::int64_t>(array_of(zip, "row")), ElementsAre(0, 1, 2));
  EXPECT_THAT(values_of<std::int64_t>(array_of(zip, "class")), ElementsAre(3, -1, 0));
  EXPECT_THAT(texts_of(array_of(zip, "kind")), ElementsAre("yes", "", "no"));
  const std::vector<float> p = values_of<float>(array_of(zip, "p"));
  EXPECT_EQ(p[0], 0.5F);
  EXPECT_TRUE(std::isnan(p[1]));
  EXPECT_EQ(p[2], 0.25F);
}

TEST_F(PredictionFileTest, KeysOfAnArchiveThatAreNotAllNumbersAreText) {
  const auto file = dir_.path() / "p.npz";
  const auto out = PredictionFile::create(file, "user", {{"p"}});
  for (const char* key : {"7", "007", "u8"}) out->add(key, std::vector<double>{1});
  out->finish();
  EXPECT_THAT(texts_of(array_of(ZipReader(file), "user")), ElementsAre("7", "007", "u8"));
}

TEST_F(PredictionFileTest, AnArchiveWithoutRowsHasEmptyArrays) {
  const auto file = dir_.path() / "p.npz";
  PredictionFile::create(file, "row", {{"p"}})->finish();
  const ZipReader zip(file);
  EXPECT_THAT(array_of(zip, "row").shape, ElementsAre(0));
  EXPECT_THAT(array_of(zip, "p").shape, ElementsAre(0));
}

}  // namespace
}  // namespace braid::worker
