// What a run says of the room of ragged columns that its batches leave empty.
#include "worker/input/padding.h"

#include <gtest/gtest.h>

namespace braid::worker {
namespace {

Batch batch(std::int64_t room, const std::vector<std::int32_t>& offsets) {
  Batch made;
  made.tensors = {Tensor::zeros(DType::Int64, Shape{room}),
                  Tensor::from<std::int32_t>(Shape{static_cast<std::int64_t>(offsets.size())}, offsets),
                  Tensor::zeros(DType::Float32, Shape{3})};
  return made;
}

TEST(PaddingTest, IsTheShareOfAllRoomSoFar) {
  Padding padding({"tags", "tags/offsets", "label"});
  padding.count(batch(64, {0, 10, 10, 40}));
  EXPECT_DOUBLE_EQ(padding.share().value(), 1 - 40.0 / 64);
  padding.count(batch(96, {0, 96, 96, 96}));
  EXPECT_DOUBLE_EQ(padding.share().value(), 1 - 136.0 / 160);
}

TEST(PaddingTest, IsUnknownWithoutRaggedColumns) {
  Padding padding({"ids", "other/offsets", "label"});
  padding.count(batch(64, {0, 10, 10, 40}));
  EXPECT_EQ(padding.share(), std::nullopt);
}

}  // namespace
}  // namespace braid::worker
