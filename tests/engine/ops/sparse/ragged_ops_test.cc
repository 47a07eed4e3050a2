// Ops of ragged tensors: TensorFlow 2.15's values.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ops/known_values.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;
using Numbers = std::vector<std::int64_t>;
using Types = std::vector<std::string>;

const Tensor kAllRows = i64({}, {-1});

TEST(RaggedTensorToTensorTest, PadsOrCutsRows) {
  const Tensor x = f32({5}, {1, 2, 3, 4, 5}), splits = i64({4}, {0, 2, 2, 5}), pad = f32({}, {-1});
  const AttrMap by_splits{{"row_partition_types", Types{"ROW_SPLITS"}}};
  EXPECT_EQ(to_doubles(known("RaggedTensorToTensor", {kAllRows, x, pad, splits}, by_splits)),
            (Doubles{1, 2, -1, -1, -1, -1, 3, 4, 5}));
  EXPECT_EQ(to_doubles(known("RaggedTensorToTensor", {i64({2}, {4, 2}), x, pad, splits}, by_splits)),
            (Doubles{1, 2, -1, -1, 3, 4, -1, -1}));
  const AttrMap by_rows{{"row_partition_types", Types{"FIRST_DIM_SIZE", "VALUE_ROWIDS"}}};
  EXPECT_EQ(
      to_doubles(known("RaggedTensorToTensor",
                       {kAllRows, f32({2, 2}, {1, 2, 3, 4}), pad, i64({}, {2}), i64({2}, {1, 1})}, by_rows)),
      (Doubles{-1, -1, -1, -1, 1, 2, 3, 4}));
  EXPECT_EQ(known_refusal("RaggedTensorToTensor", {kAllRows, x, pad, i64({2}, {1, 2})}, by_splits),
            "[RaggedTensorToTensor] node 'op': splits must begin with 0 and not fall");
}

TEST(RaggedTensorToTensorTest, LevelsOfRows) {
  const AttrMap attrs{{"row_partition_types", Types{"ROW_SPLITS", "ROW_SPLITS"}}};
  const Tensor y =
      known("RaggedTensorToTensor",
            {kAllRows, text({"a", "b", "c"}), word("."), i64({3}, {0, 1, 3}), i64({4}, {0, 2, 2, 3})}, attrs);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(to_strings(y), (std::vector<std::string>{"a", "b", ".", ".", ".", ".", "c", "."}));
}

TEST(RaggedTensorToSparseTest, ElementsKeepTheirPlaces) {
  const auto y = known_outputs("RaggedTensorToSparse", {i64({4}, {0, 2, 2, 3}), f32({3}, {7, 8, 9})});
  EXPECT_EQ(tensor_to_int64s(y[0]), (Numbers{0, 0, 0, 1, 2, 0}));
  EXPECT_EQ(to_doubles(y[1]), (Doubles{7, 8, 9}));
  EXPECT_EQ(tensor_to_int64s(y[2]), (Numbers{3, 2}));
}

TEST(RaggedRangeTest, EachRangeIsARow) {
  const auto y = known_outputs("RaggedRange", {i32({}, {0}), i32({3}, {2, 0, 3}), i32({}, {1})});
  EXPECT_EQ(tensor_to_int64s(y[0]), (Numbers{0, 2, 2, 5}));
  EXPECT_EQ(to_doubles(y[1]), (Doubles{0, 1, 0, 1, 2}));
  EXPECT_EQ(to_doubles(known_outputs("RaggedRange", {f32({1}, {1}), f32({1}, {0}), f32({1}, {-0.5})})[1]),
            (Doubles{1, 0.5}));
  EXPECT_EQ(known_refusal("RaggedRange", {f32({}, {0}), f32({1}, {INFINITY}), f32({}, {1})}),
            "[RaggedRange] node 'op': range 0 has inf numbers");
}

}  // namespace
}  // namespace braid::testing
