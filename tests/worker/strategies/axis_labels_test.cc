// Which axes go together.
#include "worker/strategies/axis_labels.h"

#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"

namespace braid::worker {
namespace {

using Labels = AxisLabels::Labels;

class AxisLabelsTest : public ::testing::Test {
 protected:
  Output x(const char* name, Shape shape) { return b_.placeholder(name, DType::Float32, std::move(shape)); }
  Output axes(std::vector<std::int32_t> values) {
    return b_.constant(Tensor::from<std::int32_t>(Shape{std::ssize(values)}, values));
  }
  std::optional<AxisLabels> of(const std::string& op, const std::vector<Output>& inputs, AttrMap attrs = {}) {
    const Output made = b_.op(op, inputs, std::move(attrs), "node");
    const Graph graph = import_graph(b_.graph(), "test");
    return axis_labels(graph, graph.node(graph.find(made.name())));
  }

  GraphBuilder b_;
};

TEST_F(AxisLabelsTest, OfAProductTheInnerAxisIsSummed) {
  const auto labels = of("MatMul", {x("a", {6, 4}), x("b", {8, 4})}, {{"transpose_b", true}});
  ASSERT_TRUE(labels);
  EXPECT_EQ(labels->outputs[0], (Labels{0, 1}));
  EXPECT_EQ(labels->inputs[0], (Labels{0, 2}));
  EXPECT_EQ(labels->inputs[1], (Labels{1, 2}));
  EXPECT_TRUE(labels->adds_up);
  EXPECT_EQ(summed_axis(*labels, 1), 1);
}

TEST_F(AxisLabelsTest, WhatBroadcastsHasNoLabel) {
  const auto labels = of("AddV2", {x("a", {6, 4}), x("b", {1, 4})});
  ASSERT_TRUE(labels);
  EXPECT_EQ(labels->inputs[1], (Labels{AxisLabels::kNone, 1}));
  EXPECT_TRUE(labels->linear);
  EXPECT_FALSE(of("Relu", {x("c", {6, 4})})->linear);
}

TEST_F(AxisLabelsTest, OfAReshapeTheFirstAxesOfGroupsGoTogether) {
  const auto labels =
      of("Reshape",
         {x("a", {6, 1, 8, 5}), b_.constant(Tensor::from<std::int32_t>(Shape{4}, std::vector{2, 3, 4, 10}))});
  ASSERT_TRUE(labels);
  EXPECT_EQ(labels->inputs[0], (Labels{0, AxisLabels::kNone, 1, AxisLabels::kNone}));
  EXPECT_EQ(labels->outputs[0], (Labels{0, AxisLabels::kNone, 1, AxisLabels::kNone}));
}

TEST_F(AxisLabelsTest, AMeanIsNotMadeOfSlices) {
  const auto mean = of("Mean", {x("a", {6, 4}), axes({1})}, {{"keep_dims", true}});
  ASSERT_TRUE(mean);
  EXPECT_FALSE(mean->adds_up);
  EXPECT_EQ(mean->outputs[0], (Labels{0, AxisLabels::kNone}));
}

TEST_F(AxisLabelsTest, OfASoftmaxTheLastAxisIsNeededWhole) {
  const auto labels = of("Softmax", {x("a", {2, 6, 4})});
  ASSERT_TRUE(labels);
  EXPECT_EQ(labels->inputs[0], (Labels{0, 1, AxisLabels::kNone}));
}

TEST_F(AxisLabelsTest, WithoutARuleOrAShapeThereAreNone) {
  EXPECT_FALSE(of("Cumsum", {x("a", {6, 4}), b_.constant(Tensor::scalar<std::int32_t>(0))}));
}

TEST_F(AxisLabelsTest, UnknownShapesHaveNone) { EXPECT_FALSE(of("Relu", {x("a", {-1, 4})})); }

}  // namespace
}  // namespace braid::worker
