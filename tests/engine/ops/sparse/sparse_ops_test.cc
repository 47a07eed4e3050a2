// Ops of sparse matrices in coordinates: their values where the inputs are known at compile time. Results of
// SparseCross are TensorFlow 2.21's.
#include <gtest/gtest.h>

#include "tests/engine/ops/known_values.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Numbers = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;

Tensor numbers(Numbers values) {
  return Tensor::from<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}
Tensor pairs(Numbers values) {
  return Tensor::from<std::int64_t>({static_cast<std::int64_t>(values.size() / 2), 2}, values);
}

TEST(SparseReshapeTest, KeepsTheElementsOrder) {
  const auto reshaped =
      known_outputs("SparseReshape", {pairs({0, 1, 2, 0, 3, 2}), numbers({4, 3}), numbers({2, -1, 3})});
  EXPECT_EQ(tensor_to_int64s(reshaped[0]), (Numbers{0, 0, 1, 1, 0, 0, 1, 1, 2}));
  EXPECT_EQ(tensor_to_int64s(reshaped[1]), (Numbers{2, 2, 3}));
  EXPECT_EQ(known_refusal("SparseReshape", {pairs({0, 1}), numbers({4, 3}), numbers({5, -1})}),
            "[SparseReshape] node 'op': 12 elements do not fit the new shape [5, 2]");
}

TEST(SparseFillEmptyRowsTest, EveryRowHasAnElement) {
  // TensorFlow's example, with its rows out of order.
  const auto filled =
      known_outputs("SparseFillEmptyRows", {pairs({2, 0, 0, 1, 0, 3, 3, 1, 2, 3}),
                                            text({"c", "a", "b", "e", "d"}), numbers({5, 6}), word("none")});
  EXPECT_EQ(tensor_to_int64s(filled[0]), (Numbers{0, 1, 0, 3, 1, 0, 2, 0, 2, 3, 3, 1, 4, 0}));
  EXPECT_EQ(to_strings(filled[1]), (Strings{"a", "b", "none", "c", "d", "e", "none"}));
  EXPECT_EQ(to_doubles(filled[2]), (std::vector<double>{0, 1, 0, 0, 1}));
  EXPECT_EQ(tensor_to_int64s(filled[3]), (Numbers{3, 0, 1, 5, 4}));
  const auto nothing =
      known_outputs("SparseFillEmptyRows", {i64({0, 2}, {}), f32({0}, {}), numbers({2, 3}), f32({}, {0.5F})});
  EXPECT_EQ(tensor_to_int64s(nothing[0]), (Numbers{0, 0, 1, 0}));
  EXPECT_EQ(to_doubles(nothing[1]), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(
      known_refusal("SparseFillEmptyRows", {pairs({2, 0}), numbers({1}), numbers({2, 1}), i64({}, {0})}),
      "[SparseFillEmptyRows] node 'op': element 0 is in row 2 of 2");
}

TEST(SparseCrossTest, EveryCombinationOfARow) {
  const std::vector<Tensor> inputs{pairs({0, 0, 1, 0, 1, 1}), text({"a", "b", "c"}), numbers({2, 2}),
                                   i64({2, 1}, {7, -1})};
  const auto joined = known_outputs("SparseCross", inputs, {{"N", 1}, {"hashed_output", false}});
  EXPECT_EQ(tensor_to_int64s(joined[0]), (Numbers{0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(to_strings(joined[1]), (Strings{"a_X_7", "b_X_-1", "c_X_-1"}));
  EXPECT_EQ(tensor_to_int64s(joined[2]), (Numbers{2, 2}));
  const AttrMap hashed{{"N", 1}, {"hashed_output", true}, {"num_buckets", 1000}, {"hash_key", 956888297470}};
  EXPECT_EQ(tensor_to_int64s(known_outputs("SparseCross", inputs, hashed)[1]), (Numbers{856, 203, 7}));
}

TEST(DenseBincountTest, CountsWeighsAndMarks) {
  const Tensor x = axes({1, 1, 5, 3}), size = Tensor::scalar<std::int32_t>(4), none = f32({0}, {});
  EXPECT_EQ(to_doubles(known_outputs("DenseBincount", {x, size, none})[0]),
            (std::vector<double>{0, 2, 0, 1}));
  EXPECT_EQ(to_doubles(known_outputs("DenseBincount", {x, size, f32({4}, {0.5F, 2, 9, 4})})[0]),
            (std::vector<double>{0, 2.5, 0, 4}));
  const Tensor rows = i32({2, 2}, {1, 1, 0, 3});
  EXPECT_EQ(to_doubles(known_outputs("DenseBincount", {rows, size, none}, {{"binary_output", true}})[0]),
            (std::vector<double>{0, 1, 0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(known_refusal("DenseBincount", {axes({1, -1}), size, none}),
            "[DenseBincount] node 'op': element 1 is -1");
}

}  // namespace
}  // namespace braid::testing
