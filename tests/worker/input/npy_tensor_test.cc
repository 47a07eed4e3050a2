// Feeds of another type than the graph's.
#include "worker/input/npy_tensor.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

TEST(NpyTensorTest, FloatsOfEveryWidthBecomeTheGraphs) {
  const Tensor x = Tensor::from<float>({3}, std::vector<float>{1.0F, -0.5F, 3.140625F});
  for (const DType half : {DType::Float16, DType::BFloat16}) {
    const Tensor narrow = converted(x, half, "x");
    EXPECT_EQ(narrow.dtype(), half);
    const Tensor back = converted(narrow, DType::Float64, "x");
    EXPECT_EQ(back.data<double>()[1], -0.5);
    EXPECT_EQ(back.data<double>()[2], 3.140625);
  }
  const Tensor third = Tensor::from<double>({1}, std::vector<double>{1.0 / 3});
  EXPECT_EQ(converted(converted(third, DType::BFloat16, "x"), DType::Float32, "x").data<float>()[0],
            0.333984375F);
}

TEST(NpyTensorTest, FloatsAreNoIntegers) {
  const Tensor half = converted(Tensor::from<float>({1}, std::vector<float>{1}), DType::Float16, "x");
  EXPECT_EQ(message_of([&] { converted(half, DType::Int32, "--feed x"); }),
            "--feed x: the array holds float16, the graph expects int32");
}

}  // namespace
}  // namespace braid::worker
