// Which updates multiply their gradient by the number that clips it, and which squares become one node.
// Compiling needs no device.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/program/program.h"
#include "tests/engine/rewrite/updates_test_base.h"

namespace braid::testing {
namespace {

class UpdateFactorsTest : public UpdatesTest {
 protected:
  void SetUp() override {
    UpdatesTest::SetUp();
    half_ = feed("half", DType::Float32, {});
    scale_ = add("scale", "braid.ClipScale", {half_}, {{"clip_norm", 1.0}});
  }

  ValueRef clipped(const std::string& name, ValueRef gradient) {
    return add(name + "/clipped", "Mul", {gradient, scale_}, {});
  }
  void dense(const std::string& name, const Shape& shape, ValueRef gradient, OptimizerSpec spec = {}) {
    add(name, "braid.ApplyOptimizer", {variable(name + "/w", shape), gradient}, optimizer_attrs(spec));
    request_.targets.push_back(name);
  }
  void sparse(const std::string& name, std::int64_t rows, ValueRef values) {
    const ValueRef indices = feed(name + "/i", DType::Int64, {graph_.info(values).shape[0]});
    add(name, "braid.SparseApplyOptimizer", {variable(name + "/w", {rows, 4}), indices, values},
        optimizer_attrs({}));
    request_.targets.push_back(name);
  }

  /// "op of n inputs" of products and updates, sorted; "by a factor" where it has one.
  Ops compiled(Domain domain = Domain::Device, int streams = 1) {
    CompileOptions options;
    options.domain = domain;
    options.streams.count = streams;
    Ops ops;
    const auto program = compile(graph_, request_, options);
    for (const ProgramOp& op : program->ops)
      if (op.writes_variable || op.op == "Mul")
        ops.push_back(op.op + " " + std::to_string(op.inputs.size()) +
                      (program->graph.node(op.node).attrs.get("has_factor", false) ? " by a factor" : ""));
    std::sort(ops.begin(), ops.end());
    return ops;
  }

  ValueRef half_, scale_;
};

TEST_F(UpdateFactorsTest, UpdatesMultiplyGradientsThemselves) {
  dense("a", {3}, clipped("a", feed("a/g", DType::Float32, {3})));
  dense("b", {5}, clipped("b", feed("b/g", DType::Float32, {5})));
  sparse("t", 9, clipped("t", feed("t/v", DType::Float32, {6, 4})));
  sparse("u", 8, clipped("u", feed("u/v", DType::Float32, {2, 4})));
  EXPECT_EQ(compiled(),
            (Ops{"braid.ApplyOptimizerMany 5 by a factor", "braid.SparseApplyOptimizerMany 7 by a factor"}));
  EXPECT_EQ(compiled(Domain::Device, 2),
            (Ops{"braid.ApplyOptimizerMany 5 by a factor", "braid.SparseApplyGrouped 6 by a factor"}));
  EXPECT_EQ(compiled(Domain::Host),
            (Ops{"Mul 2", "Mul 2", "Mul 2", "Mul 2", "braid.ApplyOptimizer 2", "braid.ApplyOptimizer 2",
                 "braid.SparseApplyOptimizer 3", "braid.SparseApplyOptimizer 3"}));
}

TEST_F(UpdateFactorsTest, UpdatesOfTwoFactorsAreTwoGroups) {
  dense("a", {3}, clipped("a", feed("a/g", DType::Float32, {3})));
  dense("b", {3}, clipped("b", feed("b/g", DType::Float32, {3})));
  dense("c", {3}, add("c/by", "Mul", {half_, feed("c/g", DType::Float32, {3})}, {}));
  dense("d", {3}, feed("d/g", DType::Float32, {3}));
  EXPECT_EQ(compiled(), (Ops{"braid.ApplyOptimizer 2", "braid.ApplyOptimizer 3 by a factor",
                             "braid.ApplyOptimizerMany 5 by a factor"}));
}

TEST_F(UpdateFactorsTest, LanesOfAProductHaveItsFactor) {
  const ValueRef lanes = add("lanes", "Unpack", {clipped("x", feed("x", DType::Float32, {2, 6, 4}))},
                             {{"num", std::int64_t{2}}, {"axis", std::int64_t{0}}});
  sparse("t", 9, lanes);
  sparse("u", 8, {lanes.node, 1});
  EXPECT_EQ(compiled(), (Ops{"braid.SparseApplyOptimizerMany 7 by a factor"}));
}

TEST_F(UpdateFactorsTest, AProductThatOthersReadStays) {
  const ValueRef product = clipped("a", feed("a/g", DType::Float32, {3}));
  dense("a", {3}, product);
  request_.fetches.push_back("a/clipped");
  EXPECT_EQ(compiled(), (Ops{"Mul 2", "braid.ApplyOptimizer 2"}));
}

// A number that is not finite would hide in a factor where elements are left out for what they are.
TEST_F(UpdateFactorsTest, WhereElementsMayBeLeftOutTheProductStays) {
  dense("a", {3}, clipped("a", feed("a/g", DType::Float32, {3})), {.skip_nan = true});
  EXPECT_EQ(compiled(), (Ops{"Mul 2", "braid.ApplyOptimizer 2"}));
}

TEST_F(UpdateFactorsTest, ProductsByVectorsStay) {
  dense("a", {3},
        add("a/by", "Mul", {feed("a/g", DType::Float32, {3}), feed("a/s", DType::Float32, {1})}, {}));
  EXPECT_EQ(compiled(), (Ops{"Mul 2", "braid.ApplyOptimizer 2"}));
}

class GroupNormsTest : public UpdateFactorsTest {
 protected:
  /// A dense gradient, or values of a table's rows by indices, that the scale looks at.
  ValueRef squared(const std::string& name, const Shape& shape) {
    const ValueRef x = feed(name + "/g", DType::Float32, shape);
    halves_.push_back(add(name + "/loss", "L2Loss", {x}, {}));
    return x;
  }
  void table(const std::string& name, std::int64_t rows, std::int64_t n, std::int64_t said_rows) {
    const ValueRef values = feed(name + "/v", DType::Float32, {n, 4});
    sparse(name, rows, values);
    halves_.push_back(add(name + "/loss", "braid.RowsL2Loss", {{graph_.find(name + "/i"), 0}, values},
                          {{"rows", said_rows}}));
  }
  Ops squares(int streams) {
    add("all", "braid.ClipScale", halves_, {{"clip_norm", 1.0}});
    request_.fetches.push_back("all");
    CompileOptions options;
    options.domain = Domain::Device;
    options.streams.count = streams;
    Ops ops;
    const auto program = compile(graph_, request_, options);
    for (const ProgramOp& op : program->ops)
      if (op.op.find("L2Loss") != std::string::npos || op.op == "braid.ClipScale")
        ops.push_back(op.op + " " + std::to_string(op.inputs.size()));
    std::sort(ops.begin(), ops.end());
    return ops;
  }
  std::vector<ValueRef> halves_;
};

TEST_F(GroupNormsTest, SquaresOfManyGradientsAreOneNode) {
  squared("a", {3});
  squared("b", {4, 5});
  squared("large", {2049, 2048});
  table("t", 9, 6, 9);
  table("u", 8, 2, 8);
  EXPECT_EQ(squares(2),
            (Ops{"L2Loss 1", "braid.ClipScale 3", "braid.L2LossMany 2", "braid.RowsL2LossMany 3"}));
}

TEST_F(GroupNormsTest, WithoutGroupedRowsTablesKeepTheirs) {
  table("t", 9, 6, 9);
  table("u", 8, 2, 8);
  EXPECT_EQ(squares(1), (Ops{"braid.ClipScale 2", "braid.RowsL2Loss 2", "braid.RowsL2Loss 2"}));
}

TEST_F(GroupNormsTest, RowsOfOtherTablesAreNotThoseThatAreGrouped) {
  table("t", 9, 6, 9);
  table("u", 8, 2, 7);
  EXPECT_EQ(squares(2), (Ops{"braid.ClipScale 2", "braid.RowsL2Loss 2", "braid.RowsL2Loss 2"}));
}

TEST_F(GroupNormsTest, WhatOthersReadStays) {
  squared("a", {3});
  squared("b", {4, 5});
  squared("c", {5});
  request_.fetches.push_back("b/loss");
  EXPECT_EQ(squares(2), (Ops{"L2Loss 1", "braid.ClipScale 2", "braid.L2LossMany 2"}));
}

}  // namespace
}  // namespace braid::testing
