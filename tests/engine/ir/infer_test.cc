#include "engine/ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/ir/op.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InferTest : public ::testing::Test {
 protected:
  ValueRef add(const std::string& name, const std::string& op, std::vector<ValueRef> inputs,
               AttrMap attrs = {}) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return {graph_.add(std::move(node)), 0};
  }
  ValueRef placeholder(const std::string& name, Shape shape, DType dtype = DType::Float32) {
    return add(name, "Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  }
  ValueRef constant(const std::string& name, Tensor value) {
    const DType dtype = value.dtype();
    return add(name, "Const", {}, {{"dtype", dtype}, {"value", std::move(value)}});
  }
  std::vector<std::int64_t> known(ValueRef value) {
    const Tensor* tensor = graph_.known_value(value);
    return tensor ? tensor_to_int64s(*tensor) : std::vector<std::int64_t>{-999};
  }

  Graph graph_;
};

TEST_F(InferTest, ShapesOfStaticValuesAreKnownAndFoldOn) {
  const ValueRef x = placeholder("x", {6, 4});
  const ValueRef shape = add("shape", "Shape", {x}, {{"out_type", DType::Int32}});
  const ValueRef twice = add("twice", "AddV2", {shape, shape});
  EXPECT_THAT(known(shape), ElementsAre(6, 4));
  EXPECT_THAT(known(twice), ElementsAre(12, 8));
  const ValueRef view = add("view", "Identity", {twice});
  EXPECT_THAT(known(view), ElementsAre(12, 8));
  EXPECT_EQ(graph_.known_value(view)->raw(), graph_.known_value(twice)->raw());
}

TEST_F(InferTest, WhatDependsOnAFeedIsUnknownUntilItsShapeIsFed) {
  const ValueRef x = placeholder("x", {-1, 4});
  const ValueRef shape = add("shape", "Shape", {x}, {{"out_type", DType::Int32}});
  const ValueRef rank = add("rank", "Rank", {x});
  const ValueRef flat = constant("flat", Tensor::from<std::int32_t>({1}, std::vector<std::int32_t>{-1}));
  const ValueRef y = add("y", "Reshape", {x, flat});
  EXPECT_EQ(graph_.known_value(shape), nullptr);
  EXPECT_THAT(known(rank), ElementsAre(2));
  EXPECT_EQ(graph_.info(y).shape, Shape{-1});

  const FeedInfo feed{x, DType::Float32, {3, 4}};
  infer_graph(graph_, {&feed, 1});
  EXPECT_THAT(known(shape), ElementsAre(3, 4));
  EXPECT_EQ(graph_.info(y).shape, Shape{12});
}

TEST_F(InferTest, AFedValueIsNotKnownAnyMore) {
  const ValueRef a = constant("a", Tensor::scalar<std::int32_t>(3));
  const ValueRef b = add("b", "AddV2", {a, a});
  EXPECT_THAT(known(b), ElementsAre(6));
  const FeedInfo feed{a, DType::Int32, {}};
  infer_graph(graph_, {&feed, 1});
  EXPECT_EQ(graph_.known_value(a), nullptr);
  EXPECT_EQ(graph_.known_value(b), nullptr);
}

TEST_F(InferTest, AFeedThatContradictsItsNodeIsRefused) {
  const ValueRef x = placeholder("x", {-1, 4});
  const auto message = [&](const FeedInfo& feed) {
    return message_of([&] { infer_graph(graph_, {&feed, 1}); });
  };
  EXPECT_EQ(message({x, DType::Float32, {3, 5}}),
            "[Placeholder] node 'x': feed 'x' is float32 [3, 5], the graph expects float32 [?, 4]");
  EXPECT_THAT(message({x, DType::Int32, {3, 4}}), HasSubstr("is int32 [3, 4]"));
}

TEST_F(InferTest, LargeValuesAreNotFolded) {
  const ValueRef big = constant("big", Tensor::zeros(DType::Float32, {8 * 1024}));
  const ValueRef sum = add("sum", "AddV2", {big, big});
  EXPECT_NE(graph_.known_value(big), nullptr);
  EXPECT_EQ(graph_.known_value(sum), nullptr);
}

TEST_F(InferTest, HandlesHaveTheShapeOfTheirVariable) {
  const ValueRef w = add("w", "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{2, 3}}});
  const ValueRef read = add("read", "ReadVariableOp", {w}, {{"dtype", DType::Float32}});
  EXPECT_EQ(graph_.info(w).dtype, DType::Resource);
  EXPECT_EQ(graph_.info(read).shape, (Shape{2, 3}));
  EXPECT_EQ(graph_.known_value(read), nullptr);
  EXPECT_EQ(variable_of(graph_, w).name, "w");
  EXPECT_THROW(variable_of(graph_, read), InvalidArgument);
}

TEST_F(InferTest, VariablesAreListedOnceAndMustAgree) {
  add("b", "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{2}}, {"shared_name", "v"}});
  add("a", "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{3}}, {"_trainable", false}});
  add("b2", "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{2}}, {"shared_name", "v"}});
  const std::vector<VariableInfo> variables = list_variables(graph_);
  ASSERT_EQ(variables.size(), 2u);
  EXPECT_EQ(variables[0].name, "v");
  EXPECT_EQ(variables[0].handle, graph_.find("b"));
  EXPECT_FALSE(variables[1].trainable);
  add("b3", "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{9}}, {"shared_name", "v"}});
  EXPECT_THROW(list_variables(graph_), InvalidArgument);
}

}  // namespace
}  // namespace braid
