#include "engine/builder/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using testing::Interpreter;

const NodeDef& node(const GraphBuilder& builder, const std::string& name) {
  for (const NodeDef& node : builder.graph().node()) {
    if (node.name() == name) return node;
  }
  throw InvalidArgument("no node " + name);
}

TEST(GraphBuilderTest, NamesAreUniqueInsideScopes) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2});
  EXPECT_EQ(b.relu(x).node, "Relu");
  EXPECT_EQ(b.relu(x).node, "Relu_1");
  {
    NameScope outer(b, "a");
    NameScope inner(b, "b");
    EXPECT_EQ(b.relu(x).node, "a/b/Relu");
    EXPECT_EQ(b.op("Relu", {x}, {}, "mine").node, "a/b/mine");
  }
  EXPECT_EQ(b.relu(x).node, "Relu_2");
  EXPECT_THROW(b.placeholder("x", DType::Float32, {2}), InvalidArgument);
  EXPECT_THROW(b.relu({"nothing", 0}), InvalidArgument);
  EXPECT_THROW(NameScope(b, ""), InvalidArgument);
}

TEST(GraphBuilderTest, ScopesAnnotateTheNodesMadeInTheirLife) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2});
  Output inner;
  Output outer;
  Output colocated;
  {
    StreamScope s(b, 2);
    DeviceScope d(b, "/cpu:0");
    {
      StreamScope t(b, 1, false);
      inner = b.relu(x);
    }
    outer = b.relu(x);
    ColocateScope c(b, inner);
    colocated = b.relu(x);
  }
  const Output plain = b.relu(x);
  const Graph graph = import_graph(b.graph());
  const auto imported = [&](const Output& output) { return graph.node(graph.find(output.node)); };
  EXPECT_EQ(imported(inner).stream, 1);
  EXPECT_FALSE(imported(inner).include_grad);
  EXPECT_EQ(imported(outer).stream, 2);
  EXPECT_TRUE(imported(outer).include_grad);
  EXPECT_EQ(imported(outer).device, "/cpu:0");
  EXPECT_EQ(imported(colocated).colocate_with, graph.find(inner.node));
  EXPECT_EQ(imported(plain).stream, kNoStream);
  EXPECT_EQ(imported(plain).colocate_with, kNoNode);
  EXPECT_EQ(imported(plain).device, "");
  EXPECT_THROW(StreamScope(b, -1), InvalidArgument);
}

TEST(GraphBuilderTest, S3_ScopesNestAndTheOuterOneIsRestored) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2});
  std::vector<Output> made;
  {
    StreamScope outer(b, 3, false);
    made.push_back(b.relu(x));
    {
      StreamScope inner(b, b.get_stream(1));
      made.push_back(b.relu(x));
      StreamScope again(b, 3);
      made.push_back(b.relu(x));
    }
    made.push_back(b.relu(x));
  }
  made.push_back(b.relu(x));
  const Graph graph = import_graph(b.graph());
  const int streams[] = {3, 1, 3, 3, kNoStream};
  const bool include_grad[] = {false, true, true, false, true};
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Node& node = graph.node(graph.find(made[i].node));
    EXPECT_EQ(node.stream, streams[i]) << i;
    EXPECT_EQ(node.include_grad, include_grad[i]) << i;
  }
}

TEST(GraphBuilderTest, S3_AutomaticStreamsMoveAwayFromIdsThatTheUserWrites) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2});
  const StreamHandle first = b.get_stream(), second = b.get_stream();
  EXPECT_EQ(first.id(), 1);
  EXPECT_EQ(second.id(), 2);
  Output early, user, late;
  {
    StreamScope s(b, first);
    early = b.relu(x);
    StreamScope t(b, 1);
    user = b.relu(x);
  }
  EXPECT_EQ(first.id(), 3);
  EXPECT_EQ(second.id(), 2);
  EXPECT_EQ(b.get_stream().id(), 4);
  {
    StreamScope s(b, first);
    late = b.relu(x);
  }
  EXPECT_EQ(b.get_stream(2).id(), 2);
  EXPECT_EQ(second.id(), 5);
  const Graph graph = import_graph(b.graph());
  EXPECT_EQ(graph.node(graph.find(early.node)).stream, 3);
  EXPECT_EQ(graph.node(graph.find(late.node)).stream, 3);
  EXPECT_EQ(graph.node(graph.find(user.node)).stream, 1);
  EXPECT_THROW(b.get_stream(-1), InvalidArgument);
}

TEST(GraphBuilderTest, S3_WhatIsWrittenOnTheNodeItselfIsStrongerThanScopes) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2}), y = b.placeholder("y", DType::Float32, {2});
  const StreamHandle automatic = b.get_stream();
  EXPECT_EQ(automatic.id(), 1);
  Output node;
  {
    StreamScope s(b, 3, false);
    ColocateScope c(b, x);
    node = b.op("Relu", {x},
                {{"_stream_id", 1}, {"_include_grad", true}, {"_class", std::vector<std::string>{"loc:@y"}}});
  }
  EXPECT_EQ(automatic.id(), 2) << "1 is the user's";
  const auto& attrs = b.graph().node(b.graph().node_size() - 1).attr();
  EXPECT_EQ(attrs.at("_stream_id").i(), 1);
  EXPECT_TRUE(attrs.at("_include_grad").b());
  EXPECT_EQ(attrs.at("_class").list().s_size(), 2);
  EXPECT_THROW(b.op("Relu", {x}, {{"_stream_id", -1}}), InvalidArgument);
  EXPECT_THROW(b.op("Relu", {x}, {{"_stream_id", std::int64_t{1} << 40}}), InvalidArgument);
}

TEST(GraphBuilderTest, VariablesCarryWhatTheJobNeedsToMakeThem) {
  GraphBuilder b;
  NameScope scope(b, "model");
  const Output handle =
      b.variable("table", {10, 4}, {.init = {InitKind::Normal, 0, 0.5F}, .trainable = false, .sparse = true});
  b.gather(handle, b.placeholder("ids", DType::Int64, {-1}));
  const Graph graph = import_graph(b.graph());
  const VariableInfo info = list_variables(graph).at(0);
  EXPECT_EQ(info.name, "model/table");
  EXPECT_EQ(info.shape, (Shape{10, 4}));
  EXPECT_FALSE(info.trainable);
  EXPECT_TRUE(info.sparse);
  EXPECT_EQ(graph.node(info.handle).attrs.require<std::int64_t>("_init_kind"),
            static_cast<int>(InitKind::Normal));
  EXPECT_EQ(graph.node(info.handle).attrs.require<double>("_init_b"), 0.5);
  EXPECT_THROW(b.read(b.placeholder("x", DType::Float32, {2})), InvalidArgument);
}

TEST(GraphBuilderTest, ADenseLayerComputesItsFormula) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 2});
  const Output y = b.dense("layer", x, 2, 3, true);
  const Graph graph = import_graph(b.graph());
  Interpreter interpreter(graph);
  interpreter.variables()["layer/kernel"] = Tensor::from<float>({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  interpreter.variables()["layer/bias"] = Tensor::from<float>({3}, std::vector<float>{0, -20, 1});
  const Tensor value =
      interpreter.run({{"x", Tensor::from<float>({1, 2}, std::vector<float>{1, 2})}}, {y.name()})[0];
  EXPECT_THAT(value.data<float>(), ElementsAre(9, 0, 16));
}

TEST(GraphBuilderTest, ControlDependenciesAndLaterOutputsAreWritten) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {4});
  const Output first = b.relu(x);
  const Output second = b.relu(x);
  b.control_dependency(first, second);
  EXPECT_THAT(node(b, second.node).input(), ElementsAre("x", "^Relu"));
  EXPECT_EQ((Output{"split", 2}).name(), "split:2");
}

TEST(GraphBuilderTest, MeanWithoutAxesIsOverAllOfThem) {
  GraphBuilder b;
  const Output mean = b.reduce_mean(b.placeholder("x", DType::Float32, {-1, 2}));
  const Graph graph = import_graph(b.graph());
  EXPECT_EQ(graph.info(graph.parse_value(mean.name())).shape, Shape{});
  Interpreter interpreter(graph);
  const Tensor x = Tensor::from<float>({2, 2}, std::vector<float>{1, 2, 3, 6});
  EXPECT_EQ(interpreter.run({{"x", x}}, {mean.name()})[0].data<float>()[0], 3);
}

TEST(GraphBuilderTest, ShapesBeyondInt32AreKept) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1});
  const Output wide = b.reshape(x, {-1, 3'000'000'000}), narrow = b.reshape(x, {-1, 3});
  const Graph graph = import_graph(b.graph());
  EXPECT_EQ(graph.info(graph.parse_value(wide.name())).shape, (Shape{-1, 3'000'000'000}));
  EXPECT_EQ(graph.info(graph.parse_value(narrow.name())).shape, (Shape{-1, 3}));
  EXPECT_EQ(node(b, "Reshape/shape").attr().at("dtype").type(), DT_INT64);
  EXPECT_EQ(node(b, "Reshape/shape_1").attr().at("dtype").type(), DT_INT32);
}

}  // namespace
}  // namespace braid
