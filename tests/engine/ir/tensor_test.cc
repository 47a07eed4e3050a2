#include "engine/ir/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/error.h"
#include "engine/ir/attr.h"

namespace braid {
namespace {

TEST(TensorTest, MemoryIsAlignedAndCopiesShareIt) {
  Tensor a = Tensor::zeros(DType::Float32, {3});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw()) % 64, 0u);
  Tensor b = a;
  b.data<float>()[1] = 2;
  EXPECT_EQ(a.data<float>()[1], 2);
  Tensor c = a.clone();
  c.data<float>()[1] = 3;
  EXPECT_EQ(a.data<float>()[1], 2);
}

TEST(TensorTest, EmptyTensorsHaveAnAddress) {
  const Tensor empty(DType::Int64, {0, 4});
  EXPECT_EQ(empty.bytes(), 0u);
  EXPECT_NE(empty.raw(), nullptr);
  EXPECT_TRUE(empty.clone().defined());
}

TEST(TensorTest, StringsKeepTheirBytes) {
  const std::vector<std::string> values{"a", "", std::string("x\0y", 3)};
  const Tensor tensor = Tensor::strings({3}, values);
  EXPECT_EQ(tensor.bytes(), 4 * sizeof(std::int64_t) + 4);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(tensor.string_at(i), values[static_cast<std::size_t>(i)]);
  EXPECT_EQ(tensor.clone().string_at(2), values[2]);
}

TEST(TensorTest, RefusesWhatCannotHaveMemory) {
  EXPECT_THROW(Tensor(DType::Float32, {Shape::kUnknown}), Internal);
  EXPECT_THROW(Tensor(DType::Resource, {}), Internal);
  EXPECT_THROW(Tensor(DType::Float64, Shape{std::int64_t{1} << 61}), InvalidArgument);
  EXPECT_THROW(Tensor(DType::UInt8, Shape{std::int64_t{1} << 60}), OutOfMemory);
}

TEST(TensorTest, ReshapeKeepsTheMemoryAndTheNumberOfElements) {
  const Tensor tensor = Tensor::zeros(DType::Int32, {2, 3});
  EXPECT_EQ(tensor.reshaped({6}).raw(), tensor.raw());
  EXPECT_THROW(tensor.reshaped({5}), Internal);
}

TEST(TensorTest, NumbersBecomeInt64) {
  EXPECT_EQ(tensor_to_int64s(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{-1, 7})),
            (std::vector<std::int64_t>{-1, 7}));
  EXPECT_EQ(tensor_to_int64s(Tensor::scalar<float>(3)), std::vector<std::int64_t>{3});
  EXPECT_THROW(tensor_to_int64s(Tensor::scalar<bool>(true)), InvalidArgument);
}

TEST(AttrMapTest, ErrorsNameTheAttribute) {
  const AttrMap attrs{{"axis", 2}, {"name", "x"}};
  EXPECT_EQ(attrs.get<std::int64_t>("axis", 0), 2);
  EXPECT_EQ(attrs.get<bool>("absent", true), true);
  try {
    attrs.get<bool>("axis", false);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.message().find("'axis'"), std::string::npos);
  }
  EXPECT_THROW(attrs.require<std::int64_t>("absent"), InvalidArgument);
}

}  // namespace
}  // namespace braid
