#include "engine/import/convert.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace braid {
namespace {

using ::testing::ElementsAre;

TensorProto tensor_proto(const std::string& text) {
  TensorProto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return proto;
}

template <class T>
std::vector<T> values(const Tensor& tensor) {
  const auto data = tensor.data<T>();
  return {data.begin(), data.end()};
}

TEST(ConvertTest, TheLastListValueRepeats) {
  const Tensor tensor = from_proto(
      tensor_proto("dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 2 } } float_val: [1, 2.5]"));
  EXPECT_EQ(tensor.shape(), (Shape{2, 2}));
  EXPECT_THAT(values<float>(tensor), ElementsAre(1, 2.5F, 2.5F, 2.5F));
}

TEST(ConvertTest, NoValueAtAllMeansZeros) {
  EXPECT_THAT(
      values<std::int64_t>(from_proto(tensor_proto("dtype: DT_INT64 tensor_shape { dim { size: 2 } }"))),
      ElementsAre(0, 0));
  EXPECT_EQ(from_proto(tensor_proto("dtype: DT_INT32 tensor_shape { dim { size: 0 } }")).elements(), 0);
}

TEST(ConvertTest, EveryTypeHasItsList) {
  EXPECT_THAT(values<std::uint8_t>(from_proto(tensor_proto("dtype: DT_UINT8 tensor_shape {} int_val: 255"))),
              ElementsAre(255));
  EXPECT_THAT(values<bool>(from_proto(tensor_proto("dtype: DT_BOOL tensor_shape {} bool_val: true"))),
              ElementsAre(true));
  EXPECT_THAT(
      values<std::uint64_t>(from_proto(tensor_proto("dtype: DT_UINT64 tensor_shape {} uint64_val: 7"))),
      ElementsAre(7));
  EXPECT_THAT(values<double>(from_proto(tensor_proto("dtype: DT_DOUBLE tensor_shape {} double_val: -0.5"))),
              ElementsAre(-0.5));
  const Tensor half =
      from_proto(tensor_proto("dtype: DT_HALF tensor_shape { dim { size: 2 } } half_val: 15360"));
  EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(half.raw())[1], 0x3C00);  // 1.0
  const Tensor text =
      from_proto(tensor_proto("dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: 'ab'"));
  EXPECT_EQ(text.string_at(1), "ab");
}

TEST(ConvertTest, ContentMustFitTheShape) {
  TensorProto proto = tensor_proto("dtype: DT_FLOAT tensor_shape { dim { size: 2 } }");
  const std::vector<float> expected{3, 4};
  proto.set_tensor_content(expected.data(), 8);
  EXPECT_EQ(values<float>(from_proto(proto)), expected);
  proto.set_tensor_content("123");
  EXPECT_THROW(from_proto(proto), InvalidArgument);
}

TEST(ConvertTest, BadTensorsAreRefused) {
  for (const char* text : {
           "dtype: DT_FLOAT tensor_shape { unknown_rank: true } float_val: 1",
           "dtype: DT_FLOAT tensor_shape { dim { size: -1 } } float_val: 1",
           "dtype: DT_FLOAT tensor_shape { dim { size: -5 } } float_val: 1",
           "dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: [1, 2]",
           "dtype: DT_INT8 tensor_shape {} int_val: 300",
           "dtype: DT_COMPLEX64 tensor_shape {} scomplex_val: [1, 2]",
           "dtype: DT_RESOURCE tensor_shape {}",
           "dtype: DT_FLOAT tensor_shape { dim { size: 1099511627776 } dim { size: 1024 } } float_val: 1",
           "dtype: DT_STRING tensor_shape { dim { size: 1099511627776 } } string_val: 'a'",
           "dtype: DT_FLOAT tensor_shape { dim { size: 4294967296 } dim { size: 4294967296 } } "
           "tensor_content: 'abcd'",
       }) {
    EXPECT_THROW(from_proto(tensor_proto(text)), InvalidArgument) << text;
  }
}

TEST(ConvertTest, TensorsRoundTrip) {
  const Tensor numbers = Tensor::from<std::int32_t>({3}, std::vector<std::int32_t>{1, -2, 3});
  EXPECT_EQ(values<std::int32_t>(from_proto(to_proto(numbers))), values<std::int32_t>(numbers));
  const Tensor text = Tensor::strings({2}, std::vector<std::string>{"a", "bc"});
  EXPECT_EQ(from_proto(to_proto(text)).string_at(1), "bc");
}

TEST(ConvertTest, AttributesRoundTrip) {
  const AttrMap attrs{{"i", 7},
                      {"f", 0.5},
                      {"b", true},
                      {"s", "text"},
                      {"type", DType::Float64},
                      {"shape", Shape{2, -1}},
                      {"any", Shape::unknown_rank()},
                      {"ints", std::vector<std::int64_t>{1, 2}},
                      {"floats", std::vector<double>{0.25}},
                      {"bools", std::vector<bool>{true, false}},
                      {"strings", std::vector<std::string>{"a"}},
                      {"types", std::vector<DType>{DType::Int64}},
                      {"shapes", std::vector<Shape>{Shape{}, Shape{3}}}};
  for (const auto& [name, attr] : attrs) {
    const std::optional<Attr> back = from_proto(to_proto(attr));
    ASSERT_TRUE(back.has_value()) << name;
    EXPECT_EQ(back->index(), attr.index()) << name;
    EXPECT_EQ(to_proto(*back).SerializeAsString(), to_proto(attr).SerializeAsString()) << name;
  }
}

TEST(ConvertTest, ReferencesLoseTheReference) {
  EXPECT_EQ(from_proto(DT_INT32_REF), DType::Int32);
  EXPECT_THROW(from_proto(DT_QINT8), InvalidArgument);
  EXPECT_THROW(from_proto(DT_INVALID), InvalidArgument);
  EXPECT_THROW(from_proto(DT_COMPLEX64_REF), InvalidArgument);
}

}  // namespace
}  // namespace braid
