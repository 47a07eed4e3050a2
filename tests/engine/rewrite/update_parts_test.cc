// Which updates of tables read gradients that are parts of one tensor where they are. Compiling needs no
// device.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/program/program.h"
#include "tests/engine/rewrite/updates_test_base.h"

namespace braid::testing {
namespace {

class UpdatePartsTest : public UpdatesTest {
 protected:
  void update(const std::string& name, std::int64_t width, ValueRef values) {
    const ValueRef table = variable(name + "/w", {40, width});
    const ValueRef indices = feed(name + "/i", DType::Int64, {graph_.info(values).shape[0]});
    add(name, "braid.SparseApplyOptimizer", {table, indices, values}, optimizer_attrs({}));
    request_.targets.push_back(name);
  }
  static Tensor scalar(std::int32_t value) {
    return Tensor::from<std::int32_t>(Shape{}, std::vector<std::int32_t>{value});
  }
  /// Parts of those widths, of rows of a matrix.
  NodeId split(std::int64_t rows, const std::vector<std::int32_t>& widths) {
    std::int64_t all = 0;
    for (const std::int32_t width : widths) all += width;
    const Shape count{std::ssize(widths)};
    const ValueRef sizes =
                       add("sizes", "Const", {},
                           {{"dtype", DType::Int32}, {"value", Tensor::from<std::int32_t>(count, widths)}}),
                   axis = add("axis", "Const", {}, {{"dtype", DType::Int32}, {"value", scalar(1)}});
    return add("split", "SplitV", {feed("x", DType::Float32, {rows, all}), sizes, axis},
               {{"num_split", std::ssize(widths)}})
        .node;
  }

  /// What moves elements and what updates, sorted; of updates where values begin in wider rows.
  Ops compiled(Domain domain = Domain::Device) {
    CompileOptions options;
    options.domain = domain;
    Ops ops;
    const auto program = compile(graph_, request_, options);
    for (const ProgramOp& op : program->ops) {
      std::string said = op.op;
      for (const std::int64_t offset :
           program->graph.node(op.node).attrs.get<std::vector<std::int64_t>>("value_offsets", {}))
        said += " " + std::to_string(offset);
      ops.push_back(said);
    }
    std::sort(ops.begin(), ops.end());
    return ops;
  }
};

TEST_F(UpdatePartsTest, AreReadInPlace) {
  const NodeId parts = split(6, {4, 8, 4});
  update("a", 4, {parts, 0});
  update("b", 8, {parts, 1});
  update("c", 4, {parts, 2});
  EXPECT_EQ(compiled(), (Ops{"braid.SparseApplyOptimizer 4", "braid.SparseApplyOptimizerMany 0 12"}));
  EXPECT_EQ(compiled(Domain::Host), (Ops{"SplitV", "braid.SparseApplyOptimizer", "braid.SparseApplyOptimizer",
                                         "braid.SparseApplyOptimizer"}));
}

TEST_F(UpdatePartsTest, OfOthersAreSliced) {
  const NodeId parts = split(6, {2, 8, 8});
  add("read", "Neg", {{parts, 0}}, {});
  request_.fetches.push_back("read");
  update("b", 8, {parts, 1});
  update("c", 8, {parts, 2});
  EXPECT_EQ(compiled(), (Ops{"Neg", "Slice", "braid.SparseApplyOptimizerMany 2 10"}));
}

TEST_F(UpdatePartsTest, StayWhereOthersReadMuch) {
  const NodeId parts = split(6, {4, 8});
  add("read", "Neg", {{parts, 0}}, {});
  request_.fetches.push_back("read");
  update("b", 8, {parts, 1});
  EXPECT_EQ(compiled(), (Ops{"Neg", "SplitV", "braid.SparseApplyOptimizer"}));
}

TEST_F(UpdatePartsTest, OfRowsStay) {
  const ValueRef axis = add("axis", "Const", {}, {{"dtype", DType::Int32}, {"value", scalar(0)}});
  const ValueRef halves =
      add("split", "Split", {axis, feed("x", DType::Float32, {6, 4})}, {{"num_split", std::int64_t{2}}});
  update("a", 4, halves);
  update("b", 4, {halves.node, 1});
  // The outputs are views.
  EXPECT_EQ(compiled().back(), "braid.SparseApplyOptimizerMany");
}

}  // namespace
}  // namespace braid::testing
