// Updates of tables that bags read: no rows of single ids are made, whatever reads the table besides.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/autodiff/gradients.h"
#include "engine/compile/compile.h"
#include "engine/ir/op.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/program/program.h"
#include "tests/engine/testing/assumed_kernels.h"

namespace braid::testing {
namespace {

class BagUpdatesTest : public ::testing::Test {
 protected:
  using Ops = std::vector<std::string>;

  ValueRef add(const std::string& op, std::vector<ValueRef> inputs, AttrMap attrs = {},
               const std::string& name = {}) {
    Node node;
    node.name = graph_.unique_name(name.empty() ? op : name);
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return {graph_.add(std::move(node)), 0};
  }
  ValueRef table(const std::string& name, std::int64_t rows) {
    return add("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{rows, 4}}}, name);
  }
  ValueRef feed(const std::string& name, DType dtype, const Shape& shape) {
    request_.feeds.push_back({name, dtype, shape});
    return add("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  }
  ValueRef bag(std::vector<ValueRef> inputs, AttrMap attrs = {}) {
    attrs.set("dtype", DType::Float32);
    const ValueRef sums = add("braid.Bag", std::move(inputs), std::move(attrs));
    losses_.push_back(add("L2Loss", {sums}));
    return sums;
  }

  /// Of one step: updates with what their values are said by, and ops of bags.
  Ops compiled(Domain domain = Domain::Host) {
    Graph saved = graph_;
    const ValueRef loss = losses_.size() == 1
                              ? losses_[0]
                              : add("AddN", losses_, {{"N", static_cast<std::int64_t>(losses_.size())}});
    CompileRequest request = request_;
    for (const VariableGradient& gradient : add_gradients(graph_, loss)) {
      AttrMap attrs = optimizer_attrs({});
      const AttrMap& made = graph_.node(gradient.slices->indices.node).attrs;
      if (made.get("pads_indices", false)) attrs.set("skip_negative", true);
      const ValueRef update =
          add("braid.SparseApplyOptimizer",
              {{gradient.variable.handle, 0}, gradient.slices->indices, gradient.slices->values}, attrs,
              "update");
      request.targets.push_back(graph_.node(update.node).name);
    }
    CompileOptions options;
    options.domain = domain;
    options.streams.count = domain == Domain::Device ? 2 : 1;
    const auto program = compile(graph_, request, options);
    graph_ = std::move(saved);
    Ops ops;
    for (const ProgramOp& op : program->ops) {
      if (op.writes_variable) {
        const AttrMap& attrs = program->graph.node(op.node).attrs;
        std::string text = op.op;
        for (const std::int64_t hot : attrs.get("hots", std::vector<std::int64_t>{}))
          text += " hot " + std::to_string(hot);
        if (attrs.get("has_bags", false)) text += " bags";
        if (attrs.get("weighted", false)) text += " weights";
        ops.push_back(text);
      } else if (op.op.starts_with("braid.Bag") || op.op == "braid.GroupRows") {
        ops.push_back(op.op);
      }
    }
    std::sort(ops.begin(), ops.end());
    return ops;
  }

  Graph graph_;
  CompileRequest request_;
  std::vector<ValueRef> losses_;
};

TEST_F(BagUpdatesTest, AColumnOfListsUpdatesByItsSums) {
  bag({table("t", 9), feed("ids", DType::Int64, {5, 3})});
  EXPECT_EQ(compiled(), (Ops{"braid.Bag", "braid.SparseApplyOptimizer hot 3"}));
}

/// As on a worker that has none of a table's rows.
TEST_F(BagUpdatesTest, AColumnOfNoRowsUpdatesByItsSums) {
  bag({table("t", 9), feed("ids", DType::Int64, {0, 3})});
  EXPECT_EQ(compiled(), (Ops{"braid.Bag", "braid.SparseApplyOptimizer hot 1"}));
}

TEST_F(BagUpdatesTest, AMeanIsScaledBefore) {
  bag({table("t", 9), feed("ids", DType::Int32, {5, 3})}, {{"pooling", "mean"}});
  EXPECT_EQ(compiled(), (Ops{"braid.Bag", "braid.BagScale", "braid.SparseApplyOptimizer hot 3"}));
}

TEST_F(BagUpdatesTest, ARaggedColumnSaysTheBagOfEachId) {
  bag({table("t", 9), feed("ids", DType::Int64, {8}), feed("offsets", DType::Int64, {6}),
       feed("weights", DType::Float32, {8})},
      {{"ragged", true}, {"weighted", true}});
  EXPECT_EQ(compiled(),
            (Ops{"braid.Bag", "braid.BagIds", "braid.BagOf", "braid.SparseApplyOptimizer bags weights"}));
}

TEST_F(BagUpdatesTest, ColumnsThatShareATableJoinTheirSums) {
  const ValueRef t = table("t", 9);
  bag({t, feed("a", DType::Int64, {5, 3})});
  bag({t, feed("b", DType::Int64, {5, 3})});
  EXPECT_EQ(compiled(), (Ops{"braid.Bag", "braid.Bag", "braid.SparseApplyOptimizer hot 3"}));
  bag({t, feed("c", DType::Int64, {5, 2})});
  losses_.push_back(
      add("L2Loss", {add("ResourceGather", {t, feed("d", DType::Int64, {7})}, {{"dtype", DType::Float32}})}));
  // Which row an id has is known where columns have as many ids in each row.
  EXPECT_EQ(compiled(), (Ops{"braid.Bag", "braid.Bag", "braid.Bag", "braid.SparseApplyOptimizer bags"}));
}

TEST_F(BagUpdatesTest, OnADeviceTablesAreReadByOneNodeAndUpdatedByOne) {
  assume_cuda_kernels();
  bag({table("t", 9), feed("a", DType::Int64, {5, 3})});
  bag({table("u", 7), feed("b", DType::Int64, {5, 1})});
  bag({table("v", 6), feed("c", DType::Int64, {5, 2})});
  EXPECT_EQ(compiled(Domain::Device),
            (Ops{"braid.BagMany", "braid.GroupRows", "braid.SparseApplyGrouped hot 3 hot 1 hot 2"}));
}

TEST_F(BagUpdatesTest, OnADeviceColumnsOfOneIdAreUpdatedByOne) {
  assume_cuda_kernels();
  bag({table("t", 9), feed("a", DType::Int64, {5, 1})});
  bag({table("u", 7), feed("b", DType::Int64, {5, 1})});
  EXPECT_EQ(compiled(Domain::Device),
            (Ops{"braid.BagMany", "braid.GroupRows", "braid.SparseApplyGrouped hot 1 hot 1"}));
}

}  // namespace
}  // namespace braid::testing
