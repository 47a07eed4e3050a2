// Values of ops that scan, order or rearrange elements, as TensorFlow's documentation shows them.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;

Tensor counting_from_one(Shape shape) {
  Tensor t(DType::Int32, std::move(shape));
  for (std::size_t i = 0; i < t.data<std::int32_t>().size(); ++i)
    t.data<std::int32_t>()[i] = static_cast<std::int32_t>(i) + 1;
  return t;
}

TEST(CumulativeTest, ScansFromEitherEnd) {
  const Tensor x = i32({3}, {2, 3, 5}), axis = i32({}, {0});
  EXPECT_EQ(values("Cumsum", {x, axis}), (Doubles{2, 5, 10}));
  EXPECT_EQ(values("Cumsum", {x, axis}, {{"exclusive", true}}), (Doubles{0, 2, 5}));
  EXPECT_EQ(values("Cumsum", {x, axis}, {{"reverse", true}}), (Doubles{10, 8, 5}));
  EXPECT_EQ(values("Cumsum", {x, axis}, {{"reverse", true}, {"exclusive", true}}), (Doubles{8, 5, 0}));
  EXPECT_EQ(values("Cumprod", {x, axis}, {{"exclusive", true}}), (Doubles{1, 2, 6}));
  EXPECT_EQ(values("Cumsum", {counting_from_one({2, 3}), i32({}, {-2})}), (Doubles{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(refusal("Cumsum", {x, i32({}, {1})}), "[Cumsum] node 'op': axis 1 is out of range for rank 1");
}

TEST(TopKTest, LargestFirstAndTiesInOrder) {
  const Tensor x = f32({2, 5}, {1, 4, 4, 2, 0, 5, 5, 5, 5, 9});
  EXPECT_EQ(values("TopKV2", {x, i32({}, {3})}), (Doubles{4, 4, 2, 9, 5, 5}));
  EXPECT_EQ(values("TopKV2", {x, i32({}, {3})}, {}, 1), (Doubles{1, 2, 3, 4, 0, 1}));
  const Tensor nan = f32({3}, {1, std::nanf(""), 2});
  EXPECT_EQ(values("TopKV2", {nan, i32({}, {2})}, {}, 1), (Doubles{1, 2}));
  EXPECT_EQ(refusal("TopKV2", {nan, i32({}, {4})}),
            "[TopKV2] node 'op': k is 4, the last axis has 3 elements");
}

TEST(MirrorPadTest, ReflectsAtTheElementOrAtTheBorder) {
  const Tensor x = counting_from_one({2, 3}), pads = i32({2, 2}, {1, 1, 2, 2});
  EXPECT_EQ(values("MirrorPad", {x, pads}, {{"mode", "REFLECT"}}),
            (Doubles{6, 5, 4, 5, 6, 5, 4, 3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4, 3, 2, 1, 2, 3, 2, 1}));
  EXPECT_EQ(values("MirrorPad", {x, pads}, {{"mode", "SYMMETRIC"}}),
            (Doubles{2, 1, 1, 2, 3, 3, 2, 2, 1, 1, 2, 3, 3, 2, 5, 4, 4, 5, 6, 6, 5, 5, 4, 4, 5, 6, 6, 5}));
  EXPECT_EQ(refusal("MirrorPad", {x, i32({2, 2}, {2, 0, 0, 0})}, {{"mode", "REFLECT"}}),
            "[MirrorPad] node 'op': paddings 2 and 0 of axis 0 are larger than its 2 elements allow");
}

TEST(MirrorPadTest, PaddingsAreRefusedAsOfPad) {
  const Tensor x = counting_from_one({2, 3});
  for (const std::string op : {"Pad", "MirrorPad"}) {
    EXPECT_EQ(refusal(op, {x, i32({2, 1}, {1, 1})}),
              "[" + op + "] node 'op': paddings must have shape [rank, 2], got [2, 1]");
    EXPECT_EQ(refusal(op, {x, i32({1, 2}, {1, 1})}),
              "[" + op + "] node 'op': paddings of shape [1, 2] for shape [2, 3]");
    EXPECT_EQ(refusal(op, {x, i32({2, 2}, {1, 0, 0, -1})}),
              "[" + op + "] node 'op': axis 1 has a negative padding");
  }
}

TEST(SpaceToBatchTest, PutsEachPlaceOfABlockIntoItsOwnBatch) {
  const Tensor block = i32({2}, {2, 2}), none = i32({2, 2}, {0, 0, 0, 0});
  EXPECT_EQ(values("SpaceToBatchND", {counting_from_one({1, 4, 4, 1}), block, none}),
            (Doubles{1, 3, 9, 11, 2, 4, 10, 12, 5, 7, 13, 15, 6, 8, 14, 16}));
  const Tensor padded =
      run_op("SpaceToBatchND", {counting_from_one({2, 2, 4, 1}), block, i32({2, 2}, {0, 0, 2, 0})})[0];
  EXPECT_EQ(padded.shape(), (Shape{8, 1, 3, 1}));
  EXPECT_EQ(to_doubles(padded),
            (Doubles{0, 1, 3, 0, 9, 11, 0, 2, 4, 0, 10, 12, 0, 5, 7, 0, 13, 15, 0, 6, 8, 0, 14, 16}));
  const Tensor back = run_op("BatchToSpaceND", {padded, block, i32({2, 2}, {0, 0, 2, 0})})[0];
  EXPECT_EQ(to_doubles(back), to_doubles(counting_from_one({2, 2, 4, 1})));
  EXPECT_EQ(refusal("SpaceToBatchND", {counting_from_one({1, 3}), i32({1}, {2}), i32({1, 2}, {0, 0})}),
            "[SpaceToBatchND] node 'op': axis 1 has 3 elements with its padding, no multiple of 2");
}

TEST(SpaceToDepthTest, BlocksBecomeChannels) {
  const Tensor x = i32({1, 4, 4, 1}, {1, 2, 5, 6, 3, 4, 7, 8, 9, 10, 13, 14, 11, 12, 15, 16});
  const Tensor y = run_op("SpaceToDepth", {x}, {{"block_size", 2}})[0];
  EXPECT_EQ(y.shape(), (Shape{1, 2, 2, 4}));
  EXPECT_EQ(to_doubles(y), to_doubles(counting_from_one({16})));
  EXPECT_EQ(values("DepthToSpace", {y}, {{"block_size", 2}}), to_doubles(x));
  // Channels first: the same image, transposed before and after.
  const Tensor last = counting_from_one({1, 2, 2, 3});
  const Tensor first = run_op("Transpose", {last, axes({0, 3, 1, 2})})[0];
  EXPECT_EQ(values("SpaceToDepth", {first}, {{"block_size", 2}, {"data_format", "NCHW"}}),
            values("SpaceToDepth", {last}, {{"block_size", 2}}));
}

TEST(BitcastTest, SeesTheSameBytes) {
  EXPECT_EQ(values("Bitcast", {f32({2}, {1, -2})}, {{"type", DType::Int32}}),
            (Doubles{0x3f800000, -0x40000000}));
  const Tensor halves = run_op("Bitcast", {i64({1}, {0x100000002})}, {{"type", DType::Int32}})[0];
  EXPECT_EQ(halves.shape(), (Shape{1, 2}));
  EXPECT_EQ(to_doubles(halves), (Doubles{2, 1}));
  EXPECT_EQ(refusal("Bitcast", {i32({3}, {1, 2, 3})}, {{"type", DType::Int64}}),
            "[Bitcast] node 'op': the last axis of shape [3] must have 2 elements");
}

TEST(LinSpaceTest, EndsAreExact) {
  const Tensor y = run_op("LinSpace", {f32({}, {0.1F}), f32({}, {0.7F}), i32({}, {4})})[0];
  EXPECT_EQ(y.data<float>()[0], 0.1F);
  EXPECT_EQ(y.data<float>()[3], 0.7F);
  EXPECT_NEAR(y.data<float>()[1], 0.3F, 1e-6);
}

TEST(EnsureShapeTest, RefusesAnotherShape) {
  EXPECT_EQ(refusal("EnsureShape", {axes({1, 2})}, {{"shape", Shape{3}}}),
            "[EnsureShape] node 'op': the input has shape [2], it must have [3]");
}

}  // namespace
}  // namespace braid::testing
