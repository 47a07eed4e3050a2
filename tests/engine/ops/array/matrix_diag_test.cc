// Values of ops on diagonals: those that TensorFlow 2.15 gives, and what is refused.
#include <gtest/gtest.h>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;

const Tensor kPad = f32({}, {-1});

Tensor counted(Shape shape) {
  Tensor t(DType::Float32, std::move(shape));
  float next = 1;
  for (float& x : t.data<float>()) x = next++;
  return t;
}

Doubles part(const std::string& align) {
  return values("MatrixDiagPartV3", {counted({3, 4}), axes({-2, 2}), kPad}, {{"align", align}});
}

TEST(MatrixDiagTest, AlignSaysWhereShortDiagonalsArePadded) {
  EXPECT_EQ(part("LEFT_LEFT"), (Doubles{3, 8, -1, 2, 7, 12, 1, 6, 11, 5, 10, -1, 9, -1, -1}));
  EXPECT_EQ(part("RIGHT_LEFT"), (Doubles{-1, 3, 8, 2, 7, 12, 1, 6, 11, 5, 10, -1, 9, -1, -1}));
  EXPECT_EQ(part("LEFT_RIGHT"), (Doubles{3, 8, -1, 2, 7, 12, 1, 6, 11, -1, 5, 10, -1, -1, 9}));
  EXPECT_EQ(part("RIGHT_RIGHT"), (Doubles{-1, 3, 8, 2, 7, 12, 1, 6, 11, -1, 5, 10, -1, -1, 9}));
  EXPECT_EQ(values("MatrixDiagPartV3", {counted({3, 4}), axes({-2, 2}), kPad}), part("RIGHT_LEFT"));
  EXPECT_EQ(values("MatrixDiagPartV2", {counted({3, 4}), axes({-2, 2}), kPad}), part("LEFT_LEFT"));
}

TEST(MatrixDiagTest, DiagonalsMakeTheSmallestMatrixThatHoldsThem) {
  const Tensor any = i32({}, {-1});
  EXPECT_EQ(values("MatrixDiagV3", {counted({2}), i32({}, {1}), any, any, kPad}),
            (Doubles{-1, 1, -1, -1, -1, 2, -1, -1, -1}));
  EXPECT_EQ(values("MatrixDiagV3", {counted({4, 3}), axes({-2, 1}), i32({}, {4}), i32({}, {3}), kPad}),
            (Doubles{4, 2, -1, 7, 5, 3, 10, 8, 6, -1, 11, 9}));
  EXPECT_EQ(run_op("MatrixDiagV3", {counted({2}), i32({}, {-1}), any, i32({}, {2}), kPad})[0].shape(),
            (Shape{3, 2}));
  EXPECT_EQ(values("MatrixDiag", {i32({2}, {5, 6})}), (Doubles{5, 0, 0, 6}));
  EXPECT_EQ(values("Diag", {bools({2}, {true, true})}), (Doubles{1, 0, 0, 1}));
}

TEST(MatrixDiagTest, ElementsBesideTheDiagonalsStay) {
  EXPECT_EQ(values("MatrixSetDiagV3", {counted({2, 3}), f32({2, 2}, {70, 80, 90, 0}), axes({-1, 0})}),
            (Doubles{70, 2, 3, 90, 80, 6}));
  EXPECT_EQ(values("MatrixSetDiag", {counted({3, 2}), f32({2}, {70, 80})}), (Doubles{70, 2, 3, 80, 5, 6}));
}

TEST(MatrixDiagTest, WhatHasNoSuchDiagonalIsRefused) {
  const Tensor any = i32({}, {-1});
  EXPECT_EQ(refusal("MatrixDiagPartV3", {counted({2, 3}), i32({}, {3}), kPad}),
            "[MatrixDiagPartV3] node 'op': diagonal 3 lies outside of the matrix");
  EXPECT_EQ(refusal("MatrixDiagPartV3", {counted({2, 3}), axes({1, 0}), kPad}),
            "[MatrixDiagPartV3] node 'op': k is [1, 0], the lower diagonal comes first");
  EXPECT_EQ(refusal("MatrixDiagV3", {counted({3}), axes({0}), i32({}, {2}), any, kPad}),
            "[MatrixDiagV3] node 'op': matrices of 2 by 3 have no diagonals 0 to 0 of 3 elements");
  EXPECT_EQ(refusal("MatrixSetDiagV3", {counted({2, 3}), counted({3}), axes({0})}),
            "[MatrixSetDiagV3] node 'op': the diagonals must have shape [2], got [3]");
  EXPECT_EQ(refusal("DiagPart", {counted({2, 3})}),
            "[DiagPart] node 'op': the halves of the shape must be equal, got [2, 3]");
}

}  // namespace
}  // namespace braid::testing
