// Mixed precision around tables: sums of bags and their gradients as halves where products read and make
// such, tables and updates in float32, losses of steps near those of float32.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/ops/common/halves.h"
#include "engine/program/program.h"
#include "tests/engine/rewrite/mixed_bags.h"

namespace braid::testing {
namespace {

struct BagTypes {
  std::multiset<std::string> sums, gradients;
};

/// Types of the sums that bags make, and of what the tables' updates read.
BagTypes types_of(const CompileOptions& options) {
  const MixedModel model = trained_bags();
  const auto program = compile(model.graph, model.request, options);
  BagTypes types;
  for (const ProgramOp& op : program->ops) {
    const Node& node = program->graph.node(op.node);
    if (op.op == "braid.Bag") types.sums.emplace(dtype_name(node.outputs[0].dtype));
    if (op.op == "braid.SparseApplyOptimizer")
      types.gradients.emplace(dtype_name(program->graph.info(node.inputs.back()).dtype));
  }
  return types;
}

std::multiset<std::string> five(const char* type) { return {type, type, type, type, type}; }

TEST(MixedBagsTest, SumsAndTheirGradientsAreHalvesAmongProducts) {
  for (const DType half : {DType::BFloat16, DType::Float16}) {
    const BagTypes types = types_of(precision_options(half, Domain::Host, true));
    EXPECT_EQ(types.sums, five(dtype_name(half).data()));
    EXPECT_EQ(types.gradients, five(dtype_name(half).data()));
  }
}

TEST(MixedBagsTest, WithoutItTheyAreFloat32) {
  const BagTypes types = types_of(precision_options(DType::Float32, Domain::Host, true));
  EXPECT_EQ(types.sums, five("float32"));
  EXPECT_EQ(types.gradients, five("float32"));
}

TEST(MixedBagsTest, WhatTheJobKeepsStaysFloat32) {
  CompileOptions options = precision_options(DType::BFloat16, Domain::Host, true);
  options.precision.keep_ops = {"braid.Bag"};
  EXPECT_EQ(types_of(options).sums, five("float32"));
  options.precision.keep_ops = {"braid.SparseApplyOptimizer"};
  const BagTypes kept = types_of(options);
  EXPECT_EQ(kept.sums, five("bfloat16"));
  EXPECT_EQ(kept.gradients, five("float32"));
}

TEST(MixedBagsTest, LossesOfStepsStayNearThoseOfFloat32) {
  constexpr int kSteps = 13;  // before small differences grow
  const MixedModel model = trained_bags();
  const std::vector<float> expected = losses_of(model, precision_options(DType::Float32), kSteps);
  EXPECT_LT(expected.back(), 0.9F * expected.front()) << "it learns";
  for (const DType half : {DType::BFloat16, DType::Float16})
    for (const bool fusion : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(half), fusion ? ", regions" : ""));
      const std::vector<float> got = losses_of(model, precision_options(half, Domain::Host, fusion), kSteps);
      for (std::size_t step = 0; step < got.size(); ++step)
        EXPECT_NEAR(got[step], expected[step], 0.01) << "step " << step;
      EXPECT_NE(got, expected);
    }
}

}  // namespace
}  // namespace braid::testing
