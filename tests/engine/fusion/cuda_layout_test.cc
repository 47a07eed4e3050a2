// How a region's grid is spread over threads.
#include "engine/fusion/cuda_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace braid::fusion {
namespace {

/// y = -x of that type, and with `reduced` its largest element of each row.
Region negated(std::int64_t rows, std::int64_t columns, std::string_view type, bool reduced = false) {
  return Region::parse(
      fmt::format("region {0} {1}\nin {2} full {3}:1\napply {2} full Neg 0\n{4}out 1 {0},{1}\n{5}", rows,
                  columns, type, rows * columns, reduced ? fmt::format("reduce {} max 1\n", type) : "",
                  reduced ? fmt::format("out 2 {}\n", rows) : ""));
}

TEST(CudaLayoutTest, AThreadHas16BytesOfTheNarrowestTypeNextToEachOther) {
  constexpr std::int64_t kMany = 1 << 24;
  EXPECT_EQ(CudaLayout(negated(1, kMany, "float32")).vector, 4);
  EXPECT_EQ(CudaLayout(negated(1, kMany, "float64")).vector, 2);
  EXPECT_EQ(CudaLayout(negated(1, kMany, "bfloat16")).vector, 8);
  EXPECT_EQ(CudaLayout(negated(1, kMany, "bool")).vector, 8);
  EXPECT_EQ(CudaLayout(negated(1, kMany + 2, "float32")).vector, 2);
  EXPECT_EQ(CudaLayout(negated(1, kMany + 1, "float32")).vector, 1);
}

TEST(CudaLayoutTest, FewPlacesAreSpreadOverTheDevice) {
  EXPECT_EQ(CudaLayout(negated(1, 1000, "float32")).vector, 1);
  EXPECT_EQ(CudaLayout(negated(32, 64, "float32", true)).row_threads, 32) << "few rows";
  EXPECT_EQ(CudaLayout(negated(1 << 20, 64, "float32", true)).row_threads, 16) << "four places each";
}

TEST(CudaLayoutTest, HasEachPlaceOnce) {
  for (const std::int64_t rows : {1, 3, 40, 5000, 300000})
    for (const std::int64_t columns : {2, 3, 8, 100, 256, 257, 512, 1024, 1030, 8192})
      for (const char* type : {"float32", "float64", "bfloat16", "int32"})
        for (const bool reduced : {false, true}) {
          const CudaLayout layout(negated(rows, columns, type, reduced));
          const std::string what = fmt::format("{} x {} of {}, {}", rows, columns, type, reduced);
          EXPECT_EQ(layout.places % layout.vector, 0) << what;
          EXPECT_EQ(columns % layout.vector, 0) << what;
          EXPECT_LE(layout.places, 16) << what;
          EXPECT_LE(layout.threads, 1024) << what;
          if (reduced) {
            EXPECT_EQ(layout.threads % layout.row_threads, 0) << what;
            EXPECT_TRUE(layout.row_threads % 32 == 0 || 32 % layout.row_threads == 0) << what;
            EXPECT_GE(layout.row_threads * layout.places, columns) << what;
            EXPECT_GE(layout.blocks * (layout.threads / layout.row_threads), rows) << what;
          } else {
            EXPECT_GE(layout.blocks * layout.threads * layout.places, rows * columns) << what;
          }
        }
}

/// x and so many of its products, all of which are needed at once, and their sum of rows.
Region products(const std::string& type, int count) {
  std::string text = "region 100000 512\nin " + type + " full 51200000:1\ncast float32 full 0\n";
  for (int i = 0; i < count; ++i) text += "apply float32 full Mul 1 " + std::to_string(i + 1) + "\n";
  int last = 2;
  for (int i = 0; i + 1 < count; ++i) {
    text += "apply float32 full AddV2 " + std::to_string(last) + " " + std::to_string(3 + i) + "\n";
    last = count + 2 + i;
  }
  return Region::parse(text + "reduce float32 sum " + std::to_string(last) + "\nout " +
                       std::to_string(last + 1) + " 100000\n");
}

TEST(CudaLayoutTest, RegistersOfHalvesFollowFromTheValuesThatLive) {
  const CudaLayout few(products("bfloat16", 4)), many(products("bfloat16", 12)),
      most(products("bfloat16", 30));
  EXPECT_EQ(few.row_threads, 32);
  EXPECT_EQ(many.row_threads, 32) << "16 places of 14 values";
  EXPECT_EQ(most.row_threads, 64) << "too many for 16 places";
  EXPECT_GT(few.resident, many.resident);
  EXPECT_EQ(many.resident, 1);
  EXPECT_EQ(CudaLayout(products("float32", 4)).resident, 0) << "what the compiler likes";
  EXPECT_EQ(CudaLayout(products("float32", 12)).row_threads, 64);
}

/// Sums of columns of so many rows.
Region sums(std::int64_t rows, std::int64_t columns, const std::string& type) {
  return Region::parse(
      fmt::format("region {0} {1}\nin {2} full {3}:1\ncast float32 full 0\ncolumns float32 1\nout 2 {1}\n",
                  rows, columns, type, rows * columns));
}

TEST(CudaLayoutTest, BlocksThatSumColumnsOfHalvesAreThereAtOnce) {
  constexpr std::int64_t kProcessors = 132;
  for (const std::int64_t rows : {40000, 169245, 1 << 20})
    for (const std::int64_t columns : {64, 128, 256, 512, 768, 2048}) {
      const CudaLayout layout(sums(rows, columns, "bfloat16"));
      const std::string what = fmt::format("{} x {}", rows, columns);
      ASSERT_TRUE(layout.loops) << what;
      ASSERT_GT(layout.resident, 0) << what;
      EXPECT_LE(layout.blocks, std::max<std::int64_t>(kProcessors * layout.resident, 2 * kProcessors))
          << what;
      EXPECT_EQ(layout.threads % layout.row_threads, 0) << what;
      EXPECT_GE(layout.threads, 192) << what << ": rows of a block are added up before they are written";
      EXPECT_LE(layout.threads, 256) << what;
    }
}

TEST(CudaLayoutTest, RefusesLongRows) {
  EXPECT_THROW(CudaLayout(negated(64, kLongestRow + 1, "float32", true)), InvalidArgument);
  EXPECT_NO_THROW(CudaLayout(negated(64, kLongestRow + 1, "float32")));
}

TEST(CudaLayoutTest, SaysHowAVectorMeetsAnInput) {
  EXPECT_EQ(vector_access(contiguous_axes(4096), 4), VectorAccess::Together);
  EXPECT_EQ(vector_access({{64, 0}, {8, 1}}, 4), VectorAccess::Together) << "a row that all share";
  EXPECT_EQ(vector_access({{64, 1}, {8, 0}}, 4), VectorAccess::Same) << "an element a row";
  EXPECT_EQ(vector_access({}, 4), VectorAccess::Same);
  EXPECT_EQ(vector_access({{64, 6}, {8, 1}}, 4), VectorAccess::Apart) << "rows begin anywhere";
  EXPECT_EQ(vector_access({{64, 8}, {6, 1}}, 4), VectorAccess::Apart) << "vectors would cross rows";
  EXPECT_EQ(vector_access({{8, 1}, {64, 8}}, 4), VectorAccess::Apart) << "transposed";
  EXPECT_EQ(vector_access(contiguous_axes(4096), 1), VectorAccess::Apart);
}

}  // namespace
}  // namespace braid::fusion
