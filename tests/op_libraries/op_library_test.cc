#include "engine/ir/op_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string library(const std::string& name) { return std::string(OP_LIBRARIES) + "/" + name + ".so"; }

class OpLibraryTest : public ::testing::Test {
 protected:
  OpRegistry& registry = OpRegistry::global();

  void expect_refused(const std::string& name, const ::testing::Matcher<const std::string&>& message) {
    const std::size_t ops = registry.all().size(), libraries = loaded_op_libraries().size();
    EXPECT_ERROR(load_op_library(library(name), registry), InvalidArgument, AllOf(HasSubstr(name), message));
    EXPECT_EQ(registry.all().size(), ops) << "a refused library added ops";
    EXPECT_EQ(loaded_op_libraries().size(), libraries);
  }
};

TEST_F(OpLibraryTest, AnOpBuiltApartRunsAndHasItsGradient) {
  EXPECT_THAT(load_op_library(library("own_op"), registry), ElementsAre("Snake"));
  GraphBuilder b;
  const Output w = b.variable("w", {4}, {});
  const Output y = b.op("Snake", {b.read(w)}, {{"alpha", 0.5}}, "y");
  const Output axis = b.constant(Tensor::from<std::int32_t>(Shape{1}, std::vector{0}), "axis");
  const Output loss = b.op("Sum", {y, axis}, {}, "loss");
  Graph graph = import_graph(b.graph());
  const auto gradients = add_gradients(graph, {graph.find(loss.node), 0});
  ASSERT_EQ(gradients.size(), 1U);
  const std::string slope = graph.node(gradients[0].dense.node).name;

  const std::vector<float> x{-2, -0.5F, 0, 3};
  testing::Interpreter interpreter(graph);
  interpreter.variables()["w"] = Tensor::from<float>({4}, x);
  const std::vector<Tensor> values = interpreter.run({}, {"y", slope});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sine = std::sin(0.5 * x[i]);
    EXPECT_NEAR(values[0].data<float>()[i], x[i] + sine * sine / 0.5, 1e-6);
    EXPECT_NEAR(values[1].data<float>()[i], 1 + std::sin(2 * 0.5 * x[i]), 1e-6);
  }
}

TEST_F(OpLibraryTest, ItsShapeRuleRefusesByNode) {
  load_op_library(library("own_op"), registry);
  GraphBuilder b;
  b.op("Snake", {b.placeholder("x", DType::Float32, {2})}, {{"alpha", -1.0}}, "bent");
  EXPECT_ERROR(import_graph(b.graph()), InvalidArgument,
               AllOf(HasSubstr("bent"), HasSubstr("alpha must be positive")));
}

TEST_F(OpLibraryTest, LoadingItAgainChangesNothing) {
  load_op_library(library("own_op"), registry);
  const std::size_t ops = registry.all().size(), libraries = loaded_op_libraries().size();
  EXPECT_THAT(load_op_library(library("../op_libraries/own_op"), registry), ElementsAre("Snake"));
  EXPECT_EQ(registry.all().size(), ops);
  EXPECT_EQ(loaded_op_libraries().size(), libraries);
}

TEST_F(OpLibraryTest, WhatIsNoOpLibraryIsRefused) {
  expect_refused("nothing", HasSubstr("there is no such file"));
  expect_refused("fault_no_entry", HasSubstr("BRAID_OP_LIBRARY"));
  const TempDir folder;
  const std::string text = folder.path() / "text.so";
  std::ofstream(text) << "no shared object";
  EXPECT_ERROR(load_op_library(text, registry), InvalidArgument, HasSubstr("text.so"));
}

TEST_F(OpLibraryTest, ALibraryOfOtherHeadersIsRefused) {
  expect_refused("fault_other_contract", AllOf(HasSubstr("0.0.1"), HasSubstr("build it again")));
}

TEST_F(OpLibraryTest, OpsThatCannotBeAddedAreRefusedAndNoneIsAdded) {
  expect_refused("fault_taken_name", AllOf(HasSubstr("MatMul"), HasSubstr("exists already")));
  EXPECT_EQ(registry.find("FaultyFirst"), nullptr);
  expect_refused("fault_braids_name", HasSubstr("Braid's own"));
  expect_refused("fault_says_too_little", AllOf(HasSubstr("FaultySilent"), HasSubstr("batching")));
  expect_refused("fault_throws", AllOf(HasSubstr("FaultyTwice"), HasSubstr("registered twice")));
  expect_refused("fault_no_ops", HasSubstr("it has no ops"));
}

}  // namespace
}  // namespace braid
