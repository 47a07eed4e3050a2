// The text of a region's program.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/fusion/region.h"

namespace braid::fusion {
namespace {

constexpr const char* kText =
    "region 64 128\n"
    "in float32 full 8192:1\n"
    "in float32 full 64:0,128:1\n"
    "in float32 row 64:1\n"
    "in int32 one \n"
    "const float32 3f800000\n"
    "apply float32 full Mul 0 1\n"
    "apply float32 full LeakyRelu 5 alpha=3fc999999999999a\n"
    "reduce float32 max 6\n"
    "cast float64 row 7\n"
    "columns float32 6\n"
    "out 6 64,128\n"
    "out 7 64,1\n"
    "out 8 64\n"
    "out 9 128\n";

std::string message_of(const std::string& text) {
  try {
    Region::parse(text);
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "";
}

TEST(RegionTest, IsItsText) {
  const Region region = Region::parse(kText);
  EXPECT_EQ(region.to_text(), kText);
  EXPECT_EQ(region.rows, 64);
  EXPECT_EQ(region.steps[2].parameters.at("alpha"), 0.2);
  EXPECT_TRUE(region.reduces());
  EXPECT_TRUE(region.sums_columns());
  EXPECT_EQ(region.extent_of(8), Extent::Row);
  EXPECT_EQ(region.extent_of(9), Extent::Column);
}

TEST(RegionTest, SaysWhichLineIsWrong) {
  const auto wrong = [](const char* line) {
    return message_of(std::string("region 4 8\nin float32 full 32:1\n") + line);
  };
  EXPECT_NE(message_of("").find("there is no region"), std::string::npos);
  EXPECT_NE(message_of("in float32 full 4:1\n").find("first line"), std::string::npos);
  EXPECT_NE(wrong("apply float32 full Mul 0 7\n").find("no value 7"), std::string::npos);
  EXPECT_NE(wrong("apply float33 full Mul 0 0\n").find("no type"), std::string::npos);
  EXPECT_NE(wrong("apply float32 row Neg 0\n").find("larger"), std::string::npos);
  EXPECT_NE(wrong("in float32 row 5:1\n").find("5 elements, the extent 4"), std::string::npos);
  EXPECT_NE(wrong("in float32 row -4:1\n").find("out of range"), std::string::npos);
  EXPECT_NE(wrong("reduce float32 median 0\n").find("no reduction"), std::string::npos);
  EXPECT_NE(wrong("reduce float32 sum 0\nreduce float32 sum 1\n").find("Full"), std::string::npos);
  EXPECT_NE(wrong("columns float32 0\n").find("Full step"), std::string::npos);
  EXPECT_NE(
      wrong("apply float32 full Neg 0\ncolumns float32 1\napply float32 full Neg 2\n").find("outputs only"),
      std::string::npos);
  EXPECT_NE(wrong("out 0 32\n").find("no output"), std::string::npos);
  EXPECT_NE(wrong("apply float32 full Neg 0\nout 1 31\n").find("number of elements"), std::string::npos);
  EXPECT_NE(wrong("uniform float64 full 1 0\n").find("are float32"), std::string::npos);
  EXPECT_NE(wrong("uniform float32 one 1 0\n").find("each place"), std::string::npos);
  EXPECT_NE(message_of("region 4 8\nuniform float32 full 1\n"), "");
  EXPECT_NE(wrong("jump float32 0\n").find("unknown"), std::string::npos);
  EXPECT_NE(wrong("const float32 xyz\n").find("no number"), std::string::npos);
}

TEST(RegionTest, KeepsHashAndSaltOfRandomNumbers) {
  const std::string text =
      "region 4 8\nuniform float32 full 9e3779b97f4a7c15 ffffffffffffffff\nuniform float32 row 1 0\n"
      "out 0 4,8\n";
  const Region region = Region::parse(text);
  EXPECT_EQ(region.to_text(), text);
  EXPECT_EQ(region.step(0).bits, 0x9e3779b97f4a7c15U);
  EXPECT_EQ(region.step(0).salt, ~std::uint64_t{0});
  EXPECT_EQ(region.uniforms(), (std::vector<int>{0, 1}));
}

TEST(RegionTest, ReadsAndWritesPartsOfTensors) {
  const std::string text =
      "region 4 8\nin float32 full 4:24,8:1 +16\ncast float32 full 0\napply float32 full Neg 0\n"
      "out 1 4,24 8:24\nalso 2 16\n";
  const Region region = Region::parse(text);
  EXPECT_EQ(region.to_text(), text);
  EXPECT_EQ(region.inputs[0].offset, 16);
  EXPECT_EQ(region.tensors(), (std::vector<int>{0, 0}));
  const auto wrong = [](const std::string& lines) {
    return message_of("region 4 8\nin float32 full 32:1\ncast float32 full 0\n" + lines);
  };
  EXPECT_EQ(wrong("out 1 96 16:24\n"), "");
  EXPECT_NE(wrong("out 1 4,24 17:24\n").find("within the tensor"), std::string::npos);
  EXPECT_NE(wrong("out 1 5,24 0:24\n").find("within the tensor"), std::string::npos);
  EXPECT_NE(wrong("out 1 - 0:24\n").find("within the tensor"), std::string::npos);
  EXPECT_NE(wrong("out 1 4,24 0\n").find("OFFSET:WIDTH"), std::string::npos);
  EXPECT_NE(wrong("also 1 8\n").find("no part before"), std::string::npos);
  EXPECT_NE(wrong("reduce float32 sum 1\nout 2 4,8 0:8\n").find("Full"), std::string::npos);
  EXPECT_NE(wrong("cast float64 full 0\nout 1 4,24 0:24\nalso 2 8\n").find("one type"), std::string::npos);
}

TEST(RegionTest, PicksRowsOfTensors) {
  const std::string text =
      "region 64 128\n"
      "in int64 row 64:1\n"
      "in bfloat16 full 8192:1 by 0 900\n"
      "cast float32 full 1\n"
      "out 2 64,128\n";
  const Region region = Region::parse(text);
  EXPECT_EQ(region.to_text(), text);
  EXPECT_TRUE(region.gathers());
  EXPECT_EQ(region.inputs[1].by, 0);
  EXPECT_EQ(region.inputs[1].of, 900);
  const auto wrong = [](const std::string& input) {
    return message_of("region 4 8\nin int32 row 4:1\nin float32 row 4:1\nin float32 full " + input);
  };
  EXPECT_EQ(wrong("32:1 by 0 7\n"), "");
  for (const char* input : {"32:1 by 1 7\n", "32:1 by 2 7\n", "4:0,8:1 by 0 7\n", "32:1 +8 by 0 7\n"})
    EXPECT_NE(wrong(input).find("by a row of integers before it"), std::string::npos) << input;
}

TEST(RegionTest, ScansPiecesOfRows) {
  const std::string text =
      "region 12 8\n"
      "in float32 full 96:1\n"
      "cast float32 full 0\n"
      "scan float32 sum 1 4 reverse exclusive\n"
      "scan float32 prod 2 4 reverse\n"
      "out 3 3,4,8\n";
  const Region region = Region::parse(text);
  EXPECT_EQ(region.to_text(), text);
  ASSERT_NE(region.scan(), nullptr);
  EXPECT_EQ(region.scan()->length, 4);
  EXPECT_TRUE(region.scan()->exclusive);
  const auto wrong = [](const std::string& lines) {
    return message_of("region 12 8\nin float32 full 96:1\ncast float32 full 0\n" + lines);
  };
  EXPECT_EQ(wrong("scan float32 sum 1 3\n"), "");
  EXPECT_NE(wrong("scan float32 sum 1 5\n").find("whole pieces"), std::string::npos);
  EXPECT_NE(wrong("scan float32 sum 1 0\n").find("whole pieces"), std::string::npos);
  EXPECT_NE(wrong("scan float32 max 1 3\n").find("neither sum nor prod"), std::string::npos);
  EXPECT_NE(wrong("scan float32 sum 0 3\n").find("a Full step"), std::string::npos);
  EXPECT_NE(wrong("scan float64 sum 1 3\n").find("keeps the type"), std::string::npos);
  EXPECT_NE(wrong("scan float32 sum 1 3 up\n").find("neither reverse nor exclusive"), std::string::npos);
  for (const char* other : {"3 reverse\n", "4\n"})
    EXPECT_NE(wrong("scan float32 sum 1 3\nscan float32 sum 2 " + std::string(other)).find("one direction"),
              std::string::npos);
  for (const char* lines :
       {"scan float32 sum 1 3\nreduce float32 sum 1\n", "columns float32 1\nscan float32 sum 1 3\n"})
    EXPECT_NE(wrong(lines).find("beside scans"), std::string::npos);
}

TEST(RegionTest, AddsUpWholePieces) {
  const std::string text =
      "region 12 8\n"
      "in float32 full 96:1\n"
      "cast float32 full 0\n"
      "scan float32 max 1 4 last\n"
      "scan float32 sum 1 4 reverse\n"
      "out 2 3,8\n"
      "out 3 12,8\n";
  const Region region = Region::parse(text);
  EXPECT_EQ(region.to_text(), text);
  EXPECT_EQ(region.elements(region.extent_of(2)), 24);
  EXPECT_FALSE(region.scan()->last) << "the one with a direction";
  const auto wrong = [](const std::string& lines) {
    return message_of("region 12 8\nin float32 full 96:1\ncast float32 full 0\n" + lines);
  };
  EXPECT_EQ(wrong("scan float32 min 1 3 last\n"), "");
  EXPECT_NE(wrong("scan float32 sum 1 3 last\napply float32 full Neg 2\n").find("outputs only"),
            std::string::npos);
  EXPECT_NE(wrong("scan float32 sum 1 3 reverse last\n").find("no direction"), std::string::npos);
  EXPECT_NE(wrong("scan float32 sum 1 3 last\nscan float32 sum 1 4\n").find("one length"), std::string::npos);
  EXPECT_NE(wrong("scan float32 sum 1 3 last\nout 2 12,8\n").find("number of elements"), std::string::npos);
}

TEST(RegionTest, AxesAreJoined) {
  EXPECT_EQ(broadcast_axes({4, 8}, {4, 8}), contiguous_axes(32));
  EXPECT_EQ(broadcast_axes({8}, {4, 8}), (Axes{{4, 0}, {8, 1}}));
  EXPECT_EQ(broadcast_axes({4, 1}, {4, 8}), (Axes{{4, 1}, {8, 0}}));
  EXPECT_EQ(broadcast_axes({}, {4, 8}), (Axes{{32, 0}}));
  EXPECT_EQ(broadcast_axes({2, 1, 8}, {2, 3, 8}), (Axes{{2, 8}, {3, 0}, {8, 1}}));
  EXPECT_EQ(broadcast_axes({1, 1}, {1, 1}), Axes{});
}

}  // namespace
}  // namespace braid::fusion
