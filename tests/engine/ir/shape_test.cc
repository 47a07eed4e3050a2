#include "engine/ir/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace braid {
namespace {

constexpr std::int64_t kAny = Shape::kUnknown;

TEST(ShapeTest, DefaultIsAScalar) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_TRUE(Shape().is_static());
  EXPECT_EQ(Shape().to_string(), "[]");
}

TEST(ShapeTest, TextShowsUnknownParts) {
  EXPECT_EQ((Shape{2, kAny, 3}).to_string(), "[2, ?, 3]");
  EXPECT_EQ(Shape::unknown_rank().to_string(), "<unknown>");
  EXPECT_FALSE((Shape{2, kAny}).is_static());
  EXPECT_FALSE(Shape::unknown_rank().is_static());
  EXPECT_NE(Shape::unknown_rank(), Shape());
}

TEST(ShapeTest, ElementsRefuseToOverflow) {
  EXPECT_EQ((Shape{0, std::int64_t{1} << 40, std::int64_t{1} << 40}).elements(), 0);
  EXPECT_THROW((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}).elements(), InvalidArgument);
}

TEST(ShapeTest, MergeFillsUnknownPartsFromEachOther) {
  Shape merged;
  EXPECT_TRUE(merge_shapes(Shape{2, kAny}, Shape{kAny, 3}, merged));
  EXPECT_EQ(merged, (Shape{2, 3}));
  EXPECT_TRUE(merge_shapes(Shape::unknown_rank(), Shape{kAny}, merged));
  EXPECT_EQ(merged, Shape{kAny});
}

TEST(ShapeTest, MergeRefusesContradictionsAndLeavesTheResultAlone) {
  Shape merged{7};
  EXPECT_FALSE(merge_shapes(Shape{2}, Shape{3}, merged));
  EXPECT_FALSE(merge_shapes(Shape{2}, Shape{2, 2}, merged));
  EXPECT_EQ(merged, Shape{7});
}

TEST(ShapeTest, BroadcastFollowsNumPy) {
  Shape result;
  EXPECT_TRUE(broadcast_shapes(Shape{4, 1, 3}, Shape{5, 1}, result));
  EXPECT_EQ(result, (Shape{4, 5, 3}));
  EXPECT_TRUE(broadcast_shapes(Shape{}, Shape{2}, result));
  EXPECT_EQ(result, Shape{2});
  EXPECT_TRUE(broadcast_shapes(Shape{0, 3}, Shape{1, 3}, result));
  EXPECT_EQ(result, (Shape{0, 3}));
  EXPECT_FALSE(broadcast_shapes(Shape{2}, Shape{3}, result));
  EXPECT_FALSE(broadcast_shapes(Shape{0}, Shape{3}, result));
}

TEST(ShapeTest, BroadcastOfUnknownDimensionsKeepsWhatIsCertain) {
  Shape result;
  EXPECT_TRUE(broadcast_shapes(Shape{kAny}, Shape{3}, result));
  EXPECT_EQ(result, Shape{3});
  EXPECT_TRUE(broadcast_shapes(Shape{kAny}, Shape{1}, result));
  EXPECT_EQ(result, Shape{kAny});
  EXPECT_TRUE(broadcast_shapes(Shape{kAny}, Shape{kAny}, result));
  EXPECT_EQ(result, Shape{kAny});
  EXPECT_TRUE(broadcast_shapes(Shape::unknown_rank(), Shape{3}, result));
  EXPECT_FALSE(result.has_rank());
}

}  // namespace
}  // namespace braid
