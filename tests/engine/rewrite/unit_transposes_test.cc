// Transpositions of axes of one element are views; others stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"

namespace braid::testing {
namespace {

/// Transpositions that are left of exp(x) transposed, with a node behind.
int transposes_of(const Shape& shape, std::vector<std::int32_t> axes) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, shape);
  const Output order = b.constant(
      Tensor::from<std::int32_t>({static_cast<std::int64_t>(axes.size())}, std::move(axes)), "order");
  const Output turned = b.op("Transpose", {b.op("Exp", {x}), order});
  CompileRequest request;
  request.feeds = {{"x", DType::Float32, shape}};
  request.fetches = {b.op("Tanh", {turned}).name()};
  const auto program = compile(import_graph(b.graph()), request, {});
  return static_cast<int>(std::count_if(program->ops.begin(), program->ops.end(),
                                        [](const ProgramOp& op) { return op.op == "Transpose"; }));
}

TEST(UnitTransposesTest, AreViewsWhereNoElementMoves) {
  EXPECT_EQ(transposes_of({4, 6, 1}, {0, 2, 1}), 0);
  EXPECT_EQ(transposes_of({1, 6, 1, 3}, {2, 1, 3, 0}), 0);
  EXPECT_EQ(transposes_of({4, 1, 6}, {1, 2, 0}), 1);
  EXPECT_EQ(transposes_of({4, 6, 2}, {0, 2, 1}), 1);
}

TEST(UnitTransposesTest, SoAreReductionsOfOneElementEach) {
  const auto reductions_of = [](const Shape& shape, std::int32_t axis, const char* op, DType dtype) {
    GraphBuilder b;
    const Output x = b.placeholder("x", dtype, shape);
    const Output along = b.constant(Tensor::from<std::int32_t>({1}, std::vector{axis}), "axis");
    const Output reduced = b.op(op, {b.op("Square", {x}), along}, {{"keep_dims", false}});
    CompileRequest request;
    request.feeds = {{"x", dtype, shape}};
    request.fetches = {b.op("Neg", {reduced}).name()};
    const auto program = compile(import_graph(b.graph()), request, {});
    return std::count_if(program->ops.begin(), program->ops.end(),
                         [&](const ProgramOp& made) { return made.op == op; });
  };
  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"}) {
    EXPECT_EQ(reductions_of({4, 1, 6}, 1, op, DType::Float32), 0) << op;
    EXPECT_EQ(reductions_of({4, 1, 6}, 2, op, DType::Float32), 1) << op;
  }
  EXPECT_EQ(reductions_of({0, 1, 6}, 1, "Sum", DType::Float32), 1);
}

}  // namespace
}  // namespace braid::testing
