// Values of ops that move and address elements, as TensorFlow documents them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;

Tensor counting(Shape shape) {
  Tensor t(DType::Int32, std::move(shape));
  for (std::size_t i = 0; i < t.data<std::int32_t>().size(); ++i)
    t.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  return t;
}

struct SliceCase {
  std::string python;  // the expression on x = arange(24).reshape(2, 3, 4)
  std::vector<std::int32_t> begin, end, strides;
  AttrMap masks;
  Shape shape;
  Doubles expected;
};

class StridedSliceOf : public ::testing::TestWithParam<SliceCase> {};

TEST_P(StridedSliceOf, MatchesNumpy) {
  const SliceCase& c = GetParam();
  const auto vector = [](const std::vector<std::int32_t>& v) {
    return Tensor::from<std::int32_t>({static_cast<std::int64_t>(v.size())}, v);
  };
  const Tensor y = run_op(
      "StridedSlice", {counting({2, 3, 4}), vector(c.begin), vector(c.end), vector(c.strides)}, c.masks)[0];
  EXPECT_EQ(y.shape(), c.shape) << c.python;
  EXPECT_EQ(to_doubles(y), c.expected) << c.python;
}

INSTANTIATE_TEST_SUITE_P(
    Expressions, StridedSliceOf,
    ::testing::Values(
        SliceCase{"x[1, 0:2, 1:3]",
                  {1, 0, 1},
                  {2, 2, 3},
                  {1, 1, 1},
                  {{"shrink_axis_mask", 1}},
                  {2, 2},
                  {13, 14, 17, 18}},
        SliceCase{"x[-1, -1]", {-1, -1}, {0, 0}, {1, 1}, {{"shrink_axis_mask", 3}}, {4}, {20, 21, 22, 23}},
        SliceCase{"x[:, ::2, -1]",
                  {0, 0, -1},
                  {0, 0, 0},
                  {1, 2, 1},
                  {{"begin_mask", 3}, {"end_mask", 3}, {"shrink_axis_mask", 4}},
                  {2, 2},
                  {3, 11, 15, 23}},
        SliceCase{"x[0, ::-1, 3:0:-2]",
                  {0, 0, 3},
                  {1, 0, 0},
                  {1, -1, -2},
                  {{"begin_mask", 2}, {"end_mask", 2}, {"shrink_axis_mask", 1}},
                  {3, 2},
                  {11, 9, 7, 5, 3, 1}},
        SliceCase{"x[..., 1]",
                  {0, 1},
                  {0, 2},
                  {1, 1},
                  {{"ellipsis_mask", 1}, {"shrink_axis_mask", 2}},
                  {2, 3},
                  {1, 5, 9, 13, 17, 21}},
        SliceCase{"x[1, ..., newaxis, 2]",
                  {1, 0, 0, 2},
                  {2, 0, 0, 3},
                  {1, 1, 1, 1},
                  {{"ellipsis_mask", 2}, {"new_axis_mask", 4}, {"shrink_axis_mask", 9}},
                  {3, 1},
                  {14, 18, 22}},
        SliceCase{"x[5:, :, :]", {5}, {0}, {1}, {{"end_mask", 1}}, {0, 3, 4}, {}},
        SliceCase{"x[:-1, -2:, 99:-99:-3]",
                  {0, -2, 99},
                  {-1, 0, -99},
                  {1, 1, -3},
                  {{"begin_mask", 1}, {"end_mask", 2}},
                  {1, 2, 2},
                  {7, 4, 11, 8}}));

TEST(StridedSliceTest, RefusesWhatNumpyRefuses) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(refusal("StridedSlice", {x, axes({2}), axes({3}), axes({1})}, {{"shrink_axis_mask", 1}}),
            "[StridedSlice] node 'op': index 2 is out of bounds for axis 0 of shape [2, 3]");
  EXPECT_EQ(refusal("StridedSlice", {x, axes({0}), axes({1}), axes({0})}),
            "[StridedSlice] node 'op': stride 0 is 0");
  EXPECT_EQ(refusal("StridedSlice", {x, axes({0, 0, 0}), axes({1, 1, 1}), axes({1, 1, 1})}),
            "[StridedSlice] node 'op': 3 indices for shape [2, 3]");
}

TEST(StridedSliceGradTest, PutsTheGradientWhereTheSliceReads) {
  EXPECT_EQ(values("StridedSliceGrad",
                   {axes({2, 3}), axes({0, 2}), axes({2, -4}), axes({1, -2}), f64({2, 2}, {1, 2, 3, 4})}),
            (Doubles{2, 0, 1, 4, 0, 3}));
}

TEST(TransposeTest, LargeTransposesPermuteEveryElement) {
  const std::int64_t rows = 77, columns = 130;
  const Tensor y = run_op("Transpose", {counting({3, rows, columns}), axes({2, 0, 1})})[0];
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t b = 0; b < 3; ++b)
      for (std::int64_t r = 0; r < rows; ++r)
        ASSERT_EQ(y.data<std::int32_t>()[static_cast<std::size_t>((c * 3 + b) * rows + r)],
                  (b * rows + r) * columns + c);
}

TEST(ConcatTest, JoinsAlongTheAxis) {
  EXPECT_EQ(values("ConcatV2", {i32({2, 1}, {1, 2}), i32({2, 2}, {3, 4, 5, 6}), i32({}, {-1})}),
            (Doubles{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(refusal("ConcatV2", {i32({2, 1}, {1, 2}), i32({1, 2}, {3, 4}), i32({}, {1})}),
            "[ConcatV2] node 'op': input 1 of shape [1, 2] does not join shape [2, 1] on axis 1");
  EXPECT_EQ(values("ConcatOffset", {i32({}, {1}), axes({2, 3}), axes({2, 4})}, {}, 1), (Doubles{0, 3}));
}

TEST(SplitTest, CutsAlongTheAxis) {
  const Tensor x = counting({2, 4});
  EXPECT_EQ(values("Split", {i32({}, {1}), x}, {{"num_split", 2}}, 1), (Doubles{2, 3, 6, 7}));
  EXPECT_EQ(values("SplitV", {x, axes({1, -1}), i32({}, {1})}, {{"num_split", 2}}, 1),
            (Doubles{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(refusal("Split", {i32({}, {1}), x}, {{"num_split", 3}}),
            "[Split] node 'op': a dimension of 4 has no 3 equal parts");
}

TEST(PackTest, StacksAndUnstacks) {
  const Tensor a = axes({1, 2}), b = axes({3, 4});
  EXPECT_EQ(values("Pack", {a, b}, {{"axis", 1}}), (Doubles{1, 3, 2, 4}));
  EXPECT_EQ(values("Unpack", {i32({2, 2}, {1, 2, 3, 4})}, {{"num", 2}, {"axis", 1}}, 1), (Doubles{2, 4}));
}

TEST(PadAndTileTest, FillAndRepeat) {
  EXPECT_EQ(values("PadV2", {axes({5}), i32({1, 2}, {1, 2}), i32({}, {7})}), (Doubles{7, 5, 7, 7}));
  EXPECT_EQ(values("Tile", {i32({1, 2}, {1, 2}), axes({2, 2})}), (Doubles{1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(values("ReverseV2", {i32({2, 2}, {1, 2, 3, 4}), axes({1})}), (Doubles{2, 1, 4, 3}));
}

TEST(BroadcastTest, FollowsNumpy) {
  EXPECT_EQ(values("BroadcastTo", {i32({2, 1}, {1, 2}), axes({2, 2})}), (Doubles{1, 1, 2, 2}));
  EXPECT_EQ(values("BroadcastGradientArgs", {axes({2, 1}), axes({4, 1, 3})}, {}, 0), (Doubles{0, 2}));
  EXPECT_EQ(values("BroadcastGradientArgs", {axes({2, 1}), axes({4, 1, 3})}, {}, 1), (Doubles{1}));
  EXPECT_EQ(values("BroadcastGradientArgs", {axes({2, 1}), axes({2, 1})}, {}, 0), Doubles{});
  EXPECT_EQ(refusal("BroadcastTo", {axes({1, 2, 3}), axes({2})}),
            "[BroadcastTo] node 'op': shape [3] does not broadcast to [2]");
}

TEST(ReshapeTest, AFreeDimensionBesideAZeroFollowsFromTheOthers) {
  EXPECT_EQ(run_op("Reshape", {counting({3, 0}), axes({-1, 0})})[0].shape(), (Shape{3, 0}));
  EXPECT_EQ(run_op("Reshape", {counting({0, 4, 3}), axes({0, -1})})[0].shape(), (Shape{0, 12}));
}

TEST(ReshapeTest, RefusesOtherCounts) {
  EXPECT_EQ(refusal("Reshape", {counting({2, 3}), axes({4, -1})}),
            "[Reshape] node 'op': 6 elements of shape [2, 3] do not fit shape [4, ?]");
}

TEST(GatherTest, TakesSlices) {
  EXPECT_EQ(values("GatherV2", {counting({2, 3}), axes({2, 0}), i32({}, {1})}), (Doubles{2, 0, 5, 3}));
  EXPECT_EQ(values("GatherNd", {counting({2, 3}), i32({2, 2}, {1, 2, 0, 1})}), (Doubles{5, 1}));
  EXPECT_EQ(values("ScatterNd", {i32({3, 1}, {1, 3, 1}), axes({5, 6, 7}), axes({4})}),
            (Doubles{0, 12, 0, 6}));
}

TEST(SegmentSumTest, SumsBySegment) {
  EXPECT_EQ(values("UnsortedSegmentSum", {axes({1, 2, 4, 8}), axes({2, -1, 2, 0}), i32({}, {4})}),
            (Doubles{8, 0, 5, 0}));
  EXPECT_EQ(values("SegmentSum", {axes({1, 2, 4}), axes({0, 0, 2})}), (Doubles{3, 0, 4}));
}

TEST(BatchNormTest, OutputsTheStatisticsThatTensorFlowDocuments) {
  const Tensor x = f64({4, 1, 1, 1}, {1, 2, 3, 6}), scale = f64({1}, {2}), offset = f64({1}, {1});
  const auto y = run_op("FusedBatchNormV3", {x, scale, offset, f64({1}, {10}), f64({1}, {20})},
                        {{"epsilon", 0.5}, {"exponential_avg_factor", 0.25}});
  EXPECT_NEAR(to_doubles(y[0])[0], 1 + 2 * (1 - 3) / std::sqrt(3.5 + 0.5), 1e-12);
  EXPECT_NEAR(to_doubles(y[1])[0], 0.75 * 10 + 0.25 * 3, 1e-12);
  EXPECT_NEAR(to_doubles(y[2])[0], 0.75 * 20 + 0.25 * 3.5 * 4 / 3, 1e-12);
  EXPECT_NEAR(to_doubles(y[3])[0], 3, 1e-12);
  EXPECT_NEAR(to_doubles(y[4])[0], 3.5, 1e-12);
}

TEST(SetOperationOp, GivesSortedSetsOfRowsAsASparseTensor) {
  const auto out =
      run_op("DenseToDenseSetOperation", {i32({2, 3}, {5, 1, 5, 2, 3, 4}), i32({2, 2}, {1, 7, 4, 4})},
             {{"set_operation", "a-b"}});
  EXPECT_EQ(to_doubles(out[0]), (std::vector<double>{0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(to_doubles(out[1]), (std::vector<double>{5, 2, 3}));
  EXPECT_EQ(to_doubles(out[2]), (std::vector<double>{2, 2}));
  EXPECT_EQ(refusal("DenseToDenseSetOperation", {i32({2, 1}, {1, 2}), i32({1, 1}, {1})},
                    {{"set_operation", "a-b"}}),
            "[DenseToDenseSetOperation] node 'op': sets [2, 1] and [1, 1] have other rows");
}

TEST(ListDiffOp, KeepsWhatIsNotInTheOtherInItsOrder) {
  const auto out = run_op("ListDiff", {i32({6}, {5, 1, 5, 3, 1, 7}), i32({3}, {1, 7, 9})});
  EXPECT_THAT(out[0].data<std::int32_t>(), ::testing::ElementsAre(5, 5, 3));
  EXPECT_THAT(out[1].data<std::int32_t>(), ::testing::ElementsAre(0, 2, 3));
}

}  // namespace
}  // namespace braid::testing
