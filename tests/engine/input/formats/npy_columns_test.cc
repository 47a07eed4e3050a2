// Arrays as columns, from memory and from .npy files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "engine/input/formats/readers.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path write(const std::string& name, const Tensor& tensor) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  write_file_atomically(path, format_npy(tensor.dtype(), tensor.shape().dims(), tensor.as_bytes()));
  return path;
}

Tensor doubles(std::int64_t rows) {
  Tensor tensor(DType::Float64, Shape{rows, 2});
  for (std::size_t i = 0; i < tensor.data<double>().size(); ++i)
    tensor.data<double>()[i] = static_cast<double>(i);
  return tensor;
}

TEST(NpyColumnsTest, FilesBecomeColumnsOfTheirNames) {
  const std::int32_t labels[] = {4, 5, 6};
  const auto stream = stream_npy(
      {write("dense.npy", doubles(3)), write("label.npy", Tensor::from<std::int32_t>(Shape{3}, labels))}, {});
  const auto table = stream->next(2);
  ASSERT_EQ(table->rows, 2);
  EXPECT_THAT(table->find("dense")->data.data<float>(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(table->find("label")->data.data<std::int64_t>(), ElementsAre(4, 5));
  EXPECT_EQ(stream->next(9)->rows, 1);
  EXPECT_EQ(stream->next(9)->rows, 0);
}

TEST(NpyColumnsTest, AWorkerTakesItsShareOfTheRows) {
  const auto table = stream_npy({write("x.npy", doubles(5))}, {.rank = 1, .world = 2})->next(INT64_MAX);
  EXPECT_EQ(table->rows, 2);
  EXPECT_EQ(table->rows_of_all, 5);
  EXPECT_THAT(table->find("x")->data.data<float>(), ElementsAre(2, 3, 6, 7));
}

TEST(NpyColumnsTest, FloatsAndIdsKeepTheirMemory) {
  const Tensor array = Tensor::zeros(DType::Float32, Shape{4, 2});
  EXPECT_EQ(table_of_arrays({{"x", array}})->find("x")->data.raw(), array.raw());
}

TEST(NpyColumnsTest, RefusesWhatIsNoTable) {
  EXPECT_THAT(message_of([] {
                table_of_arrays({{"a", doubles(3)}, {"b", doubles(2)}});
              }),
              HasSubstr("'b' has 2 rows, 'a' 3"));
  EXPECT_THAT(message_of([] {
                table_of_arrays({{"a", doubles(3)}, {"a", doubles(3)}});
              }),
              HasSubstr("two arrays"));
  EXPECT_THAT(message_of([] { table_of_arrays({{"a", Tensor::scalar(1.0F)}}); }), HasSubstr("no rows"));
  const std::string words[] = {"x"};
  EXPECT_THAT(message_of([&] {
                table_of_arrays({{"a", Tensor::strings(Shape{1}, words)}});
              }),
              HasSubstr("string"));
}

}  // namespace
}  // namespace braid
