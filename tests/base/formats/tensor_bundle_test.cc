// TensorFlow's V2 checkpoints: what TensorFlow wrote is read, what is written is read back, damage is named.
#include "base/formats/tensor_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/files.h"
#include "base/formats/snappy.h"
#include "base/formats/sorted_table.h"
#include "tests/base/formats/golden.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Dims = std::vector<std::int64_t>;

TEST(TensorBundleTest, WhatTensorFlowWroteIsRead) {
  const TensorBundleReader bundle(golden("graph.ckpt"));
  EXPECT_EQ(bundle.entries().size(), 48U) << "slices are not tensors of their own";
  EXPECT_EQ(bundle.entries().at("dense/kernel").shape, (Dims{3, 4}));
  const auto kernel = values_of<float>(bundle.read("dense/kernel"));
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(kernel[i], static_cast<float>(i) / 4);
  EXPECT_EQ(bundle.entries().at("scalar").dtype, DType::Int64);
  EXPECT_THAT(values_of<std::int64_t>(bundle.read("scalar")), ElementsAre(-7));
  EXPECT_EQ(bundle.entries().at("half").dtype, DType::Float16);
  EXPECT_THAT(values_of<std::uint16_t>(bundle.read("half")), ElementsAre(0x3E00, 0xC000));
  EXPECT_THAT(values_of<std::uint8_t>(bundle.read("flags")), ElementsAre(1, 0, 1));
  EXPECT_TRUE(bundle.read("empty").empty());
  std::string repeated;
  for (int i = 0; i < 40; ++i) repeated += "long ";
  EXPECT_THAT(strings_of(bundle.read("text"), 4), ElementsAre("a", "", repeated, std::string("\0z", 2)));
  for (int i = 0; i < 40; ++i)
    EXPECT_THAT(values_of<std::int32_t>(bundle.read("many/variable_" + std::to_string(i))),
                ElementsAre(i, i));
}

TEST(TensorBundleTest, PartitionedVariablesArePutTogether) {
  const TensorBundleReader bundle(golden("graph.ckpt"));
  EXPECT_EQ(bundle.entries().at("parts").shape, (Dims{5, 3}));
  const auto parts = values_of<float>(bundle.read("parts"));
  ASSERT_EQ(parts.size(), 15U);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(parts[i], static_cast<float>(i));
  const auto wide = values_of<float>(bundle.read("wide"));
  ASSERT_EQ(wide.size(), 400U);
  for (std::size_t i = 0; i < 400; ++i) EXPECT_EQ(wide[i], i % 200 < 100 ? 0.0F : 100.0F) << i;
}

TEST(TensorBundleTest, KeysOfSlicesSortLikeTheirNumbers) {
  std::string before;
  for (const std::int64_t begin :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, std::int64_t{8191},
        std::int64_t{8192}, std::int64_t{1} << 40, INT64_MAX}) {
    const std::string key = bundle_slice_key("name", {{begin}, {-1}});
    EXPECT_GT(key, before) << begin;
    before = key;
  }
}

TEST(TensorBundleTest, WhatIsWrittenIsReadBackAndTwiceTheSame) {
  TempDir dir;
  std::map<std::string, std::vector<std::byte>> expected;
  const auto write = [&](const std::string& name) {
    TensorBundleWriter out(dir.path() / name);
    for (int i = 0; i < 500; ++i) {
      std::vector<std::byte> data(4 * static_cast<std::size_t>(i), static_cast<std::byte>(i));
      const std::string variable = "layer_" + std::to_string(i) + "/kernel";
      out.add(variable, DType::Int32, Dims{i}, data);
      expected[variable] = std::move(data);
    }
    expected["text"] = bytes_of_strings({"one", "", std::string(70000, 'x')});
    out.add("text", DType::String, Dims{3}, expected["text"]);
    EXPECT_ERROR(out.add("text", DType::String, Dims{3}, expected["text"]), InvalidArgument,
                 HasSubstr("'text'"));
    EXPECT_ERROR(out.add("bad", DType::Float32, Dims{2}, std::vector<std::byte>(7)), InvalidArgument,
                 HasSubstr("7 bytes"));
    EXPECT_FALSE(std::filesystem::exists(dir.path() / (name + ".index")));
    out.finish();
  };
  write("a");
  write("b");
  const TensorBundleReader bundle(dir.path() / "a.index");
  EXPECT_EQ(bundle.entries().size(), expected.size());
  for (const auto& [name, data] : expected) EXPECT_EQ(bundle.read(name), data) << name;
  EXPECT_EQ(read_file(dir.path() / "a.index"), read_file(dir.path() / "b.index"));
  { TensorBundleWriter abandoned(dir.path() / "c"); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 4);
}

TEST(TensorBundleTest, DamageAndMissingPartsAreNamed) {
  TempDir dir;
  const std::string index = read_file(golden("graph.ckpt.index")),
                    data = read_file(golden("graph.ckpt.data-00000-of-00001"));
  const auto put = [&](const std::string& new_index, const std::string& new_data) {
    std::ofstream(dir.path() / "x.index", std::ios::binary) << new_index;
    std::ofstream(dir.path() / "x.data-00000-of-00001", std::ios::binary) << new_data;
    const TensorBundleReader bundle(dir.path() / "x");
    for (const auto& [name, entry] : bundle.entries()) bundle.read(name);
  };
  put(index, data);
  for (std::size_t byte = 0; byte < data.size(); byte += 61) {
    std::string damaged = data;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x04);
    EXPECT_ERROR(put(index, damaged), DataLoss,
                 AllOf(HasSubstr("x.data-00000-of-00001': tensor '"), HasSubstr("CRC")));
  }
  for (std::size_t byte = 0; byte < index.size(); byte += 7) {
    std::string damaged = index;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x04);
    try {
      put(damaged, data);  // padding of the footer, and the metaindex that nobody reads
    } catch (const DataLoss& e) {
      EXPECT_THAT(e.message(), HasSubstr("x.index"));
    }
  }
  EXPECT_ERROR(put(index.substr(0, index.size() / 2), data), DataLoss, HasSubstr("truncated"));
  EXPECT_ERROR(put(index, data.substr(0, 100)), DataLoss, HasSubstr("truncated"));
  std::filesystem::remove(dir.path() / "x.data-00000-of-00001");
  const TensorBundleReader bundle(dir.path() / "x");
  EXPECT_ERROR(bundle.read("scalar"), InvalidArgument, HasSubstr("x.data-00000-of-00001"));
  EXPECT_ERROR(bundle.read("none"), InvalidArgument, HasSubstr("has no tensor 'none'"));
  EXPECT_ERROR(TensorBundleReader(dir.path() / "none"), InvalidArgument, HasSubstr("none.index"));
}

TEST(SortedTableTest, KeysMustAscend) {
  EXPECT_ERROR(format_sorted_table({{"b", ""}, {"a", ""}}), InvalidArgument,
               HasSubstr("'a' does not come after 'b'"));
}

TEST(SortedTableTest, ManyBlocksComeBack) {
  TempDir dir;
  SortedPairs pairs;
  for (int i = 0; i < 3000; ++i)
    pairs.emplace_back("key" + std::to_string(100000 + i),
                       std::string(static_cast<std::size_t>(i % 50), 'v'));
  std::ofstream(dir.path() / "t", std::ios::binary) << format_sorted_table(pairs);
  EXPECT_EQ(read_sorted_table(dir.path() / "t"), pairs);
  std::ofstream(dir.path() / "e", std::ios::binary) << format_sorted_table({});
  EXPECT_TRUE(read_sorted_table(dir.path() / "e").empty());
}

TEST(SnappyTest, LiteralsAndCopiesOfEveryKind) {
  EXPECT_EQ(snappy_unpack(std::string("\x05\x10hello", 7)), "hello");
  // "ab", then 10 bytes from 2 before: a copy that overlaps itself.
  EXPECT_EQ(snappy_unpack(std::string("\x0C\x04"
                                      "ab\x19\x02",
                                      6)),
            "abababababab");
  EXPECT_EQ(snappy_unpack(std::string("\x0C\x04"
                                      "ab\x26\x02\0",
                                      7)),
            "abababababab");
  EXPECT_EQ(snappy_unpack(std::string("\x0C\x04"
                                      "ab\x27\x02\0\0\0",
                                      9)),
            "abababababab");
  const std::string literal(100, 'x');
  EXPECT_EQ(snappy_unpack(std::string("\x64\xF0\x63", 3) + literal), literal);
  EXPECT_ERROR(snappy_unpack(std::string("\x0C\x04"
                                         "ab\x19\x03",
                                         6)),
               DataLoss, HasSubstr("before the beginning"));
  EXPECT_ERROR(snappy_unpack(std::string("\x06\x10hello", 7)), DataLoss, HasSubstr("ends early"));
  EXPECT_ERROR(snappy_unpack(std::string("\x04\x10hello", 7)), DataLoss, HasSubstr("beyond the end"));
  EXPECT_ERROR(snappy_unpack("\xFF\xFF\xFF\xFF\x0F"), DataLoss, HasSubstr("cannot be right"));
  EXPECT_ERROR(snappy_unpack(""), DataLoss, HasSubstr("empty"));
}

}  // namespace
}  // namespace braid
