// .npy and .npz: what NumPy writes is read, what is written comes back, and damage is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "tests/base/formats/golden.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Dims = std::vector<std::int64_t>;

NpyArray parse(const std::string& bytes) { return parse_npy(std::as_bytes(std::span(bytes)), "x.npy"); }

class NpzTest : public testing::TestWithParam<const char*> {
 protected:
  NpyArray read(const std::string& name) const {
    const ZipReader zip(golden(GetParam()));
    for (const ZipEntry& entry : zip.entries())
      if (entry.name == name + ".npy") return parse_npy(zip.read(entry), name);
    ADD_FAILURE() << "no " << name;
    return {};
  }
};

TEST_P(NpzTest, WhatNumPyWroteIsRead) {
  EXPECT_EQ(ZipReader(golden(GetParam())).entries().size(), 9U);
  const NpyArray kernel = read("dense/kernel");
  EXPECT_EQ(kernel.dtype, DType::Float32);
  EXPECT_EQ(kernel.shape, (Dims{2, 3}));
  EXPECT_THAT(values_of<float>(kernel.data), ElementsAre(0, 1, 2, 3, 4, 5));
  const NpyArray fortran = read("fortran");
  EXPECT_EQ(fortran.shape, (Dims{2, 3, 4}));
  const auto values = values_of<std::int64_t>(fortran.data);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<std::int64_t>(i));
  EXPECT_THAT(values_of<std::int32_t>(read("big").data), ElementsAre(1, -2, 3));
  EXPECT_THAT(values_of<std::uint16_t>(read("half").data), ElementsAre(0x3800, 0xBE00));
  EXPECT_EQ(read("scalar").shape, Dims{});
  EXPECT_THAT(values_of<double>(read("scalar").data), ElementsAre(2.5));
  EXPECT_THAT(strings_of(read("bytes").data, 3), ElementsAre("a", "", "longer"));
  EXPECT_THAT(strings_of(read("text").data, 2), ElementsAre("a", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"));
  EXPECT_EQ(read("flags").dtype, DType::Bool);
  EXPECT_EQ(read("none").shape, (Dims{0, 4}));
  EXPECT_TRUE(read("none").data.empty());
}

INSTANTIATE_TEST_SUITE_P(All, NpzTest, testing::Values("stored.npz", "deflated.npz"),
                         [](const auto& info) { return std::string(info.param).substr(0, 6); });

/// Headers whose sizes no file has: the message names the file and the shape, and no memory is taken.
TEST(NpyTest, SizesAreCheckedAgainstTheFileBeforeMemoryIsTaken) {
  const auto array = [](const std::string& descr, const std::string& shape, const std::string& data) {
    const std::string dict =
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
    const auto size = static_cast<std::uint16_t>(dict.size());
    return std::string("\x93NUMPY\x01\x00", 8).append(reinterpret_cast<const char*>(&size), 2) + dict + data;
  };
  const auto refused = [&](const std::string& descr, const std::string& shape, const char* what) {
    EXPECT_ERROR(parse(array(descr, shape, "abcd")), DataLoss, AllOf(HasSubstr("x.npy"), HasSubstr(what)));
  };
  refused("|S0", "4611686018427387904,",
          "shape (4611686018427387904) of strings without bytes, in a file of");
  refused("<f4", "4611686018427387904, 4", "shape (4611686018427387904, 4) has more elements than any file");
  refused("<f4", "1000000000000,", "truncated: 4 of 4000000000000 bytes of elements");
  refused("<f4", "-1,", "shape '(-1,)' in its header is no list of sizes");
  EXPECT_ERROR(parse(array("<U4611686018427387904", "1,", "abcd")), InvalidArgument,
               HasSubstr("elements of type '<U4611686018427387904' are not read"));
  EXPECT_EQ(parse(array("|S0", "3,", "")).shape, Dims{3});
}

TEST(NpyTest, EveryTypeComesBack) {
  for (const DType dtype :
       {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64, DType::Int8, DType::Int16,
        DType::Int32, DType::Int64, DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64, DType::Bool}) {
    const Dims shape{2, 3};
    std::vector<std::byte> data(6 * dtype_size(dtype));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
    const NpyArray back = parse(format_npy(dtype, shape, data));
    EXPECT_EQ(back.dtype, dtype);
    EXPECT_EQ(back.shape, shape);
    EXPECT_EQ(back.data, data);
  }
  const auto strings = bytes_of_strings({"one", "", "three"});
  EXPECT_EQ(parse(format_npy(DType::String, Dims{3}, strings)).data, strings);
  EXPECT_ERROR(format_npy(DType::String, Dims{1}, bytes_of_strings({std::string("a\0", 2)})), InvalidArgument,
               HasSubstr("zero byte"));
  EXPECT_ERROR(npy_header(DType::Resource, Dims{}), InvalidArgument, HasSubstr("resource"));
}

TEST(NpyTest, ElementsBeginAtAMultipleOf64) {
  for (const Dims& shape : {Dims{}, Dims{1}, Dims{1000, 1000, 1000}, Dims(30, 1)})
    EXPECT_EQ(npy_header(DType::Float32, shape).size() % 64, 0U);
}

TEST(NpyTest, DamageIsNamed) {
  const std::string whole = format_npy(DType::Int32, Dims{3}, std::vector<std::byte>(12));
  EXPECT_ERROR(parse(whole.substr(0, whole.size() - 1)), DataLoss,
               AllOf(HasSubstr("x.npy"), HasSubstr("11 of 12 bytes")));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(parse(whole.substr(0, size)), DataLoss) << size;
  EXPECT_ERROR(parse("hello, this is text"), DataLoss, HasSubstr("not a .npy array"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = whole;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_ERROR(parse(with("<i4", "|O8")), InvalidArgument, HasSubstr("'|O8' are not read"));
  EXPECT_ERROR(parse(with("<i4", "<c8")), InvalidArgument, HasSubstr("'<c8'"));
  EXPECT_ERROR(parse(with("'<i4'", "[ '', ")), InvalidArgument, HasSubstr("structures"));
  EXPECT_ERROR(parse(with("(3,)", "(-3)")), DataLoss,
               HasSubstr("shape '(-3)' in its header is no list of sizes"));
  EXPECT_ERROR(parse(with("(3,)", "3   ")), DataLoss, HasSubstr("its header has no shape"));
}

TEST(ZipTest, EntriesComeBackAndTheFileAppearsWhole) {
  TempDir dir;
  const auto file = dir.path() / "a.zip";
  const std::string one = "one", two(100000, 'x');
  {
    ZipWriter out(file);
    const std::span<const std::byte> parts[]{
        std::as_bytes(std::span(one)), {}, std::as_bytes(std::span(two)), {}};
    out.add("a/\xE4\xB8\xAD", parts);
    out.add("empty", {});
    EXPECT_ERROR(out.add("empty", {}), InvalidArgument, HasSubstr("is there already"));
    EXPECT_ERROR(out.add("\xFFname", {}), InvalidArgument, HasSubstr("not UTF-8"));
    EXPECT_ERROR(out.add("cut \xE4\xB8", {}), InvalidArgument, HasSubstr("not UTF-8"));
    EXPECT_FALSE(std::filesystem::exists(file));
    out.finish();
  }
  const ZipReader zip(file);
  ASSERT_EQ(zip.entries().size(), 2U);
  EXPECT_EQ(zip.entries()[0].name, "a/\xE4\xB8\xAD");
  const auto bytes = zip.read(zip.entries()[0]);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), one + two);
  EXPECT_TRUE(zip.read(zip.entries()[1]).empty());
  { ZipWriter abandoned(dir.path() / "b.zip"); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(ZipTest, CutsAndFlippedBitsNeverGiveWrongBytes) {
  TempDir dir;
  const std::string whole = read_file(golden("deflated.npz"));
  const auto file = dir.path() / "damaged.npz";
  const auto read_all = [&] {
    std::vector<std::vector<std::byte>> all;
    const ZipReader zip(file);
    for (const ZipEntry& entry : zip.entries()) all.push_back(zip.read(entry));
    return all;
  };
  std::ofstream(file, std::ios::binary) << whole;
  const auto expected = read_all();
  for (std::size_t size = 0; size < whole.size(); size += 41) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, size);
    EXPECT_THROW(read_all(), DataLoss) << size;
  }
  for (std::size_t byte = 0; byte < whole.size(); byte += 13) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x10);
    std::ofstream(file, std::ios::binary) << damaged;
    try {
      const auto got = read_all();
      EXPECT_EQ(got, expected) << byte << ": a name or a date may change, elements may not";
    } catch (const Error& e) {
      EXPECT_THAT(e.message(), HasSubstr("damaged.npz"));
    }
  }
}

}  // namespace
}  // namespace braid
