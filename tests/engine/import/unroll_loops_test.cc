// Loops of TensorFlow 2 whose number of turns the graph says, and the lists that they keep.
#include "engine/import/unroll_loops.h"

#include <gmock/gmock.h>

#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Interpreter;

std::string attr(const std::string& name, const std::string& value) {
  return "attr { key: '" + name + "' value { " + value + " } } ";
}

std::string integer(const std::string& name, int value) {
  return node(
      name, "Const", "",
      attr("dtype", "type: DT_INT32") +
          attr("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: " + std::to_string(value) + " }"));
}

std::string inside(const std::string& text) {
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find("\n", at);
    all += "node_def" + text.substr(at + 4, end - at - 4) + "\n";
    at = end + 1;
  }
  return all;
}

std::string function(const std::string& name, const std::vector<std::string>& inputs,
                     const std::vector<std::pair<std::string, std::string>>& results,
                     const std::string& nodes) {
  std::string text = "function { signature { name: '" + name + "' ";
  for (const std::string& input : inputs) text += "input_arg { name: '" + input + "' } ";
  for (const auto& [key, value] : results) text += "output_arg { name: '" + key + "' } ";
  text += "} " + nodes;
  for (const auto& [key, value] : results) text += "ret { key: '" + key + "' value: '" + value + "' } ";
  return text + "}\n";
}

std::string floats(const std::string& name, const std::string& values, int count) {
  return node(
      name, "Const", "",
      attr("dtype", "type: DT_FLOAT") + attr("value", "tensor { dtype: DT_FLOAT tensor_shape { dim { size: " +
                                                          std::to_string(count) + " } } " + values + " }"));
}

const std::string kFloat = attr("T", "type: DT_FLOAT"), kInt = attr("T", "type: DT_INT32"),
                  kElement = attr("element_dtype", "type: DT_FLOAT");

/// for (i = 0; i < turns; ++i) { x *= rows[i]; seen[i] = x; } with rows and seen as lists.
std::string products(const std::string& turns) {
  const std::vector<std::string> variables{"i", "n", "x", "rows", "seen"};
  const std::string test =
      function("test", variables, {{"go", "less:z:0"}}, inside(node("less", "Less", "i n", kInt)));
  const std::string body =
      function("body", variables,
               {{"i", "next:z:0"},
                {"n", "n"},
                {"x", "product:z:0"},
                {"rows", "rows"},
                {"seen", "kept:output_handle:0"}},
               inside(integer("one", 1) + node("next", "AddV2", "i one:output:0", kInt) +
                      node("shape", "Identity", "i", kInt) +
                      node("row", "TensorListGetItem", "rows i shape:output:0", kElement) +
                      node("product", "Mul", "x row:item:0", kFloat) +
                      node("kept", "TensorListSetItem", "seen i product:z:0", kElement)));
  return "library { " + test + body + "}\n" + integer("zero", 0) + turns +
         floats("table", "float_val: 2 float_val: 3 float_val: 5", 3) +
         node("start", "Const", "",
              attr("dtype", "type: DT_FLOAT") +
                  attr("value", "tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }")) +
         node("rows", "TensorListFromTensor", "table zero", kElement) +
         node("seen", "TensorListReserve", "zero n", kElement) +
         node("loop", "StatelessWhile", "zero n start rows seen",
              attr("cond", "func { name: 'test' }") + attr("body", "func { name: 'body' }")) +
         node("last", "Identity", "loop:2", kFloat) +
         node("stack", "TensorListStack", "loop:4 zero", kElement);
}

std::vector<float> run(const std::string& text, const std::string& fetch) {
  const Graph graph = import_graph(parse_graph(text));
  Interpreter interpreter(graph);
  const Tensor value = interpreter.run({}, {fetch})[0];
  const auto data = value.data<float>();
  return {data.begin(), data.end()};
}

TEST(UnrollLoopsTest, TurnsOneAfterAnother) {
  EXPECT_THAT(run(products(integer("n", 3)), "last"), ElementsAre(30));
  EXPECT_THAT(run(products(integer("n", 2)), "last"), ElementsAre(6));
}

TEST(UnrollLoopsTest, ListsBecomeTheirElements) {
  EXPECT_THAT(run(products(integer("n", 3)), "stack"), ElementsAre(2, 6, 30));
}

TEST(UnrollLoopsTest, ALoopWithoutTurnsGivesWhatItBeganWith) {
  const Graph graph = import_graph(parse_graph(products(integer("n", 0))), "graph", {.roots = {"last"}});
  Interpreter interpreter(graph);
  EXPECT_EQ(interpreter.run({}, {"last"})[0].data<float>()[0], 1);
}

TEST(UnrollLoopsTest, TurnsMayFollowFromAShape) {
  const std::string turns = node("n", "Size", "table", kFloat + attr("out_type", "type: DT_INT32"));
  EXPECT_THAT(run(products(turns), "stack"), ElementsAre(2, 6, 30));
}

TEST(UnrollLoopsTest, TurnsMayFollowFromOneDimensionOfAShape) {
  const std::string number = attr("dtype", "type: DT_INT32");
  const auto one = [&](const std::string& name, int value) {
    return node(name, "Const", "",
                number + attr("value", "tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: " +
                                           std::to_string(value) + " }"));
  };
  const std::string turns =
      node("batch", "Placeholder", "",
           attr("dtype", "type: DT_FLOAT") + attr("shape", "shape { dim { size: -1 } dim { size: 3 } }")) +
      node("sizes", "Shape", "batch", kFloat + attr("out_type", "type: DT_INT32")) + one("first", 1) +
      one("end", 2) + one("stride", 1) +
      node("n", "StridedSlice", "sizes first end stride",
           kInt + attr("Index", "type: DT_INT32") + attr("shrink_axis_mask", "i: 1"));
  const Graph graph = import_graph(parse_graph(products(turns)), "graph", {.roots = {"last"}});
  Interpreter interpreter(graph);
  EXPECT_EQ(interpreter.run({}, {"last"})[0].data<float>()[0], 30);
}

/// What the gradients that TensorFlow writes do: a loop pushes its values, another takes them back.
TEST(UnrollLoopsTest, WhatALoopPushesAnotherPopsInTheOppositeOrder) {
  const std::vector<std::string> push_variables{"i", "n", "x", "kept"};
  const std::string less = inside(node("less", "Less", "i n", kInt));
  const std::string pushes =
      function("push_test", push_variables, {{"go", "less:z:0"}}, less) +
      function("push", push_variables,
               {{"i", "next:z:0"}, {"n", "n"}, {"x", "twice:z:0"}, {"kept", "more:output_handle:0"}},
               inside(integer("one", 1) + node("next", "AddV2", "i one:output:0", kInt) +
                      node("twice", "AddV2", "x x", kFloat) +
                      node("more", "TensorListPushBack", "kept x", kElement)));
  const std::vector<std::string> pop_variables{"i", "n", "y", "kept"};
  const std::string pops =
      function("pop_test", pop_variables, {{"go", "less:z:0"}}, less) +
      function("pop", pop_variables,
               {{"i", "next:z:0"}, {"n", "n"}, {"y", "mixed:z:0"}, {"kept", "less_of_it:output_handle:0"}},
               inside(integer("one", 1) + integer("ten", 10) + node("next", "AddV2", "i one:output:0", kInt) +
                      node("less_of_it", "TensorListPopBack", "kept ten:output:0", kElement) +
                      node("half", "Sub", "y less_of_it:tensor:0", kFloat) +
                      node("mixed", "Mul", "half less_of_it:tensor:0", kFloat)));
  const std::string text =
      "library { " + pushes + pops + "}\n" + integer("zero", 0) + integer("n", 3) +
      node("start", "Const", "",
           attr("dtype", "type: DT_FLOAT") +
               attr("value", "tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }")) +
      node("empty", "EmptyTensorList", "zero zero", kElement) +
      node("forward", "StatelessWhile", "zero n start empty",
           attr("cond", "func { name: 'push_test' }") + attr("body", "func { name: 'push' }")) +
      node("backward", "StatelessWhile", "zero n start forward:3",
           attr("cond", "func { name: 'pop_test' }") + attr("body", "func { name: 'pop' }")) +
      node("y", "Identity", "backward:2", kFloat) + node("count", "TensorListLength", "forward:3", "") +
      node("left", "TensorListLength", "backward:3", "");
  // 1, 2 and 4 are kept: ((1 - 4) 4 - 2) 2 = -28, (-28 - 1) 1 = -29.
  EXPECT_THAT(run(text, "y"), ElementsAre(-29));
  const Graph graph = import_graph(parse_graph(text));
  Interpreter interpreter(graph);
  EXPECT_EQ(interpreter.run({}, {"count"})[0].data<std::int32_t>()[0], 3);
  EXPECT_EQ(interpreter.run({}, {"left"})[0].data<std::int32_t>()[0], 0);
}

TEST(UnrollLoopsTest, TurnsThatDataDecidesAreRefused) {
  const std::string turns =
      node("n", "Placeholder", "", attr("dtype", "type: DT_INT32") + attr("shape", "shape {}"));
  const std::string error =
      message_of([&] { import_graph(parse_graph(products(turns)), "graph", {.roots = {"last"}}); });
  EXPECT_THAT(error, HasSubstr("[StatelessWhile] node 'loop'"));
  EXPECT_THAT(error, HasSubstr("control flow is not supported"));
}

TEST(UnrollLoopsTest, EndlessLoopsAreRefused) {
  const std::string error = message_of(
      [&] { import_graph(parse_graph(products(integer("n", 2000000000))), "graph", {.roots = {"last"}}); });
  EXPECT_THAT(error, HasSubstr("node 'loop'"));
}

}  // namespace
}  // namespace braid
