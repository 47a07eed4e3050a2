// Joined columns get zeros beside them where products would otherwise read rows that are not aligned, and
// mean the same: values and gradients of the variables.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "models/multi_branch.h"
#include "tests/engine/testing/differentiated.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kUnits = 256;

/// relu([x, z] w) of `rows` examples with 20 and `width` columns; w is [units, columns] where it is
/// transposed.
Differentiated joined_columns(std::int64_t rows, std::int64_t width, bool transposed,
                              bool read_elsewhere = false) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{rows, 20});
  const Output z = b.mul(b.placeholder("z", DType::Float32, Shape{rows, width}),
                         b.read(b.variable("scale", Shape{width}, {})));
  const Output joined = b.op("ConcatV2", {x, z, b.constant(Tensor::scalar<std::int32_t>(1))});
  const std::int64_t columns = 20 + width;
  const Output w = b.variable("w", transposed ? Shape{kUnits, columns} : Shape{columns, kUnits}, {});
  Output loss =
      b.reduce_mean(b.op("Square", {b.op("MatMul", {joined, b.read(w)}, {{"transpose_b", transposed}})}));
  if (read_elsewhere) loss = b.add(loss, b.reduce_mean(b.op("Square", {joined})));
  return differentiated(b, loss,
                        {{"x", random_floats({rows, 20}, 1)}, {"z", random_floats({rows, width}, 2)}});
}

/// Products in the program whose first factor has rows of more than 16 columns that are no multiple of 16
/// bytes.
int unaligned_products(const Program& program) {
  int count = 0;
  for (const ProgramOp& op : program.ops) {
    if (op.op != "MatMul" && op.op != "braid.FusedMatMul") continue;
    const Shape& first = program.graph.info(program.graph.node(op.node).inputs[0]).shape;
    const std::int64_t columns = first[first.rank() - 1];
    count += columns > 16 && columns % 4 != 0 ? 1 : 0;
  }
  return count;
}

TEST(AlignProductsTest, JoinedColumnsGetZeros) {
  const Differentiated model = joined_columns(4100, 81, false);
  EXPECT_GT(unaligned_products(*model.compiled(Domain::Host)), 0);
  const auto program = model.compiled();
  EXPECT_EQ(unaligned_products(*program), 0);
  EXPECT_EQ(count_ops(*program, "Pad"), 1);
  expect_same_values(model, *program);
}

TEST(AlignProductsTest, WhatIsColocatedWithColumnsIsWithThoseThatHaveZeros) {
  Differentiated model = joined_columns(4100, 81, false);
  NodeId joined = 0;
  while (model.graph.node(joined).op->name != "ConcatV2") ++joined;
  model.look_at("beside", {model.graph.find("x"), 0}, joined);
  const auto program = model.compiled();
  const Graph& graph = program->graph;
  const Node& with = graph.node(graph.node(graph.find("beside")).colocate_with);
  EXPECT_EQ(with.op->name, "ConcatV2");
  EXPECT_FALSE(with.removed);
}

TEST(AlignProductsTest, TransposedWeightsGetThemUnlessTheyAreTrained) {
  Differentiated model = joined_columns(4100, 81, true);
  EXPECT_EQ(count_ops(*model.compiled(), "Pad"), 0);
  model.fetches.resize(1);
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "Pad"), 1);
  expect_same_values(model, *program);
}

TEST(AlignProductsTest, TheGradientOfTheWeightsIsAView) {
  const Differentiated model = joined_columns(4100, 81, false);
  const auto program = model.compiled();
  const bool there = std::any_of(program->ops.begin(), program->ops.end(), [&](const ProgramOp& op) {
    return program->graph.node(op.node).outputs[0].shape == Shape{104, kUnits} && op.op == "MatMul";
  });
  EXPECT_TRUE(there);
  EXPECT_EQ(count_ops(*program, "braid.LeadingRows"), 0) << "it has no kernel";
}

TEST(AlignProductsTest, SmallAlignedOrSharedFactorsAreLeftAlone) {
  for (const Differentiated& model : {joined_columns(41, 81, false), joined_columns(4100, 80, false),
                                      joined_columns(4100, 81, false, true)})
    EXPECT_EQ(count_ops(*model.compiled(), "Pad"), 0);
}

TEST(AlignProductsTest, TheInteractionOfDlrmIsWrittenInPlace) {
  constexpr std::int64_t kRows = 5400;
  GraphBuilder b;
  std::vector<Output> ids;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kRows, 12}, 21)},
                                                    {"y", random_floats({kRows}, 22)}};
  std::mt19937 random(3);
  for (int t = 0; t < 6; ++t) {
    feeds.emplace_back("ids" + std::to_string(t), Tensor::zeros(DType::Int64, {kRows}));
    for (std::int64_t& id : feeds.back().second.data<std::int64_t>()) id = random() % 50;
    ids.push_back(b.placeholder(feeds.back().first, DType::Int64, Shape{kRows}));
  }
  const Output loss = build_dlrm_branches(b, b.placeholder("x", DType::Float32, Shape{kRows, 12}), 12, ids,
                                          50, 16, b.placeholder("y", DType::Float32, Shape{kRows}), 0);
  const Differentiated model = differentiated(b, loss, std::move(feeds));
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "braid.PairDots"), 1);
  for (const char* gone : {"ConcatV2", "Pack", "Unpack"}) EXPECT_EQ(count_ops(*program, gone), 0) << gone;
  EXPECT_EQ(unaligned_products(*program), 0);
  // Where sums are ordered otherwise, one of so many rows may be on the other side of a ReLU.
  expect_same_values(model, *program, 1e-3F);
}

}  // namespace
}  // namespace braid::testing
