// Ops of sparse tensors whose results follow from where the elements are: TensorFlow 2.15's values.
#include <gtest/gtest.h>

#include "tests/engine/ops/known_values.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

const Tensor kIndices = i64({4, 2}, {0, 0, 0, 2, 2, 1, 3, 0});
const Tensor kValues = f32({4}, {1, 2, 3, 4});
const Tensor kShape = i64({2}, {4, 3});

TEST(SparseReorderTest, PutsElementsInRowMajorOrder) {
  const auto sorted =
      known_outputs("SparseReorder", {i64({3, 2}, {2, 0, 0, 1, 0, 0}), text({"c", "b", "a"}), kShape});
  EXPECT_EQ(tensor_to_int64s(sorted[0]), (Numbers{0, 0, 0, 1, 2, 0}));
  EXPECT_EQ(to_strings(sorted[1]), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(known_refusal("SparseReorder", {i64({1, 2}, {4, 0}), f32({1}, {1}), kShape}),
            "[SparseReorder] node 'op': element 0 is at [4, 0], outside of shape [4, 3]");
}

TEST(SparseConcatTest, JoinsAlongAnAxis) {
  const std::vector<Tensor> inputs{kIndices, i64({2, 2}, {1, 1, 3, 0}), kValues, f32({2}, {8, 9}),
                                   kShape,   i64({2}, {4, 2})};
  const auto joined = known_outputs("SparseConcat", inputs, {{"N", 2}, {"concat_dim", -1}});
  EXPECT_EQ(tensor_to_int64s(joined[0]), (Numbers{0, 0, 0, 2, 1, 4, 2, 1, 3, 0, 3, 3}));
  EXPECT_EQ(to_doubles(joined[1]), (Doubles{1, 2, 8, 3, 4, 9}));
  EXPECT_EQ(tensor_to_int64s(joined[2]), (Numbers{4, 5}));
  EXPECT_EQ(known_refusal("SparseConcat", inputs, {{"N", 2}, {"concat_dim", 0}}),
            "[SparseConcat] node 'op': the tensors differ beside the joined axis");
}

TEST(SparseSliceTest, KeepsWhatIsInside) {
  const auto part =
      known_outputs("SparseSlice", {kIndices, kValues, kShape, i64({2}, {0, 1}), i64({2}, {3, 9})});
  EXPECT_EQ(tensor_to_int64s(part[0]), (Numbers{0, 1, 2, 0}));
  EXPECT_EQ(to_doubles(part[1]), (Doubles{2, 3}));
  EXPECT_EQ(tensor_to_int64s(part[2]), (Numbers{3, 2}));
}

TEST(SparseReduceTest, RowsWithoutElementsAreZero) {
  EXPECT_EQ(to_doubles(known("SparseReduceSum", {kIndices, kValues, kShape, axes({1})})),
            (Doubles{3, 0, 3, 4}));
  const Tensor largest = known("SparseReduceMax", {kIndices, f32({4}, {-1, -2, -3, -4}), kShape, axes({-2})},
                               {{"keep_dims", true}});
  EXPECT_EQ(to_doubles(largest), (Doubles{-1, -3, -2}));
  EXPECT_EQ(largest.shape(), (Shape{1, 3}));
}

TEST(SparseDenseTest, DenseOperandsAreBroadcast) {
  const Tensor row = f32({3}, {10, 20, 30});
  EXPECT_EQ(to_doubles(known("SparseDenseCwiseMul", {kIndices, kValues, kShape, row})),
            (Doubles{10, 60, 60, 40}));
  EXPECT_EQ(to_doubles(known("SparseDenseCwiseAdd", {kIndices, kValues, kShape, row})),
            (Doubles{11, 32, 23, 14}));
  EXPECT_EQ(
      known_refusal("SparseDenseCwiseDiv", {i64({1, 1}, {0}), i32({1}, {7}), i64({1}, {1}), i32({}, {0})}),
      "[SparseDenseCwiseDiv] node 'op': integer division by zero");
  EXPECT_EQ(to_doubles(known("SparseDenseCwiseDiv", {kIndices, kValues, kShape, f32({}, {2})})),
            (Doubles{0.5, 1, 1.5, 2}));
  EXPECT_EQ(
      to_doubles(known("SparseTensorDenseAdd", {i64({2, 1}, {2, 2}), f32({2}, {1, 5}), i64({1}, {3}), row})),
      (Doubles{10, 20, 36}));
  EXPECT_EQ(known_refusal("SparseDenseCwiseMul", {kIndices, kValues, kShape, f32({2}, {1, 2})}),
            "[SparseDenseCwiseMul] node 'op': shape [2] is not broadcast to it");
}

TEST(SparseSoftmaxTest, EachRowSumsToOne) {
  const Doubles y = to_doubles(known("SparseSoftmax", {kIndices, f64({4}, {1, 2, 3, 4}), kShape}));
  EXPECT_NEAR(y[0], 0.2689414213699951, 1e-15);
  EXPECT_NEAR(y[1], 0.7310585786300049, 1e-15);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 1);
}

}  // namespace
}  // namespace braid::testing
