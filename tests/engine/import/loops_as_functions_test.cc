// Loops and TensorArrays as TensorFlow 1 writes them.
#include "engine/import/loops_as_functions.h"

#include <gmock/gmock.h>

#include "engine/import/import.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Interpreter;

std::string attribute(const std::string& name, const std::string& value) {
  return "attr { key: '" + name + "' value { " + value + " } } ";
}

const std::string kFloatLoop = attribute("T", "type: DT_FLOAT"), kIntLoop = attribute("T", "type: DT_INT32");

std::string number(const std::string& name, const std::string& type, const std::string& value) {
  return node(name, "Const", "",
              attribute("dtype", "type: " + type) +
                  attribute("value", "tensor { dtype: " + type + " tensor_shape {} " + value + " }"));
}

std::string enter(const std::string& name, const std::string& input, const std::string& type,
                  bool constant = false) {
  return node(name, "Enter", input,
              type + attribute("frame_name", "s: 'while'") +
                  attribute("is_constant", constant ? "b: true" : "b: false"));
}

/// for (i = 0; i < turns; ++i) { x *= rows[i]; seen[i] = x; }, with rows and seen as arrays.
std::string array_products(const std::string& turns) {
  const std::string dtype = attribute("dtype", "type: DT_FLOAT");
  return number("zero", "DT_INT32", "int_val: 0") + number("start", "DT_FLOAT", "float_val: 1") + turns +
         node("table", "Const", "",
              attribute("dtype", "type: DT_FLOAT") +
                  attribute(
                      "value",
                      "tensor { dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: [2, 3, 5] }")) +
         number("one_out", "DT_INT32", "int_val: 1") +
         node("places", "Range", "zero n one_out", attribute("Tidx", "type: DT_INT32")) +
         node("rows", "TensorArrayV3", "n", dtype) +
         node("filled", "TensorArrayScatterV3", "rows places table rows:1", kFloatLoop) +
         node("seen", "TensorArrayV3", "n", dtype) + enter("enter_i", "zero", kIntLoop) +
         enter("enter_x", "start", kFloatLoop) + enter("enter_seen", "seen:1", kFloatLoop) +
         enter("enter_n", "n", kIntLoop, true) + enter("enter_rows", "rows", kIntLoop, true) +
         enter("enter_filled", "filled", kFloatLoop, true) + enter("enter_handle", "seen", kIntLoop, true) +
         node("i", "Merge", "enter_i next_i", kIntLoop) + node("x", "Merge", "enter_x next_x", kFloatLoop) +
         node("kept", "Merge", "enter_seen next_seen", kFloatLoop) +
         node("less", "Less", "i enter_n", kIntLoop) + node("go", "LoopCond", "less") +
         node("side_i", "Switch", "i go", kIntLoop) + node("side_x", "Switch", "x go", kFloatLoop) +
         node("side_seen", "Switch", "kept go", kFloatLoop) + node("at", "Identity", "side_i:1", kIntLoop) +
         node("of_x", "Identity", "side_x:1", kFloatLoop) +
         // TensorFlow's constants inside of a loop wait for its first variable, whichever that is.
         node("one", "Const", "^of_x",
              attribute("dtype", "type: DT_INT32") +
                  attribute("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 }")) +
         node("row", "TensorArrayReadV3", "enter_rows at enter_filled", dtype) +
         node("product", "Mul", "side_x:1 row", kFloatLoop) +
         node("write", "TensorArrayWriteV3", "enter_handle at product side_seen:1", kFloatLoop) +
         node("up", "AddV2", "at one", kIntLoop) + node("next_i", "NextIteration", "up", kIntLoop) +
         node("next_x", "NextIteration", "product", kFloatLoop) +
         node("next_seen", "NextIteration", "write", kFloatLoop) +
         node("last", "Exit", "side_x", kFloatLoop) + node("all", "Exit", "side_seen", kFloatLoop) +
         node("stack", "TensorArrayGatherV3", "seen places all", dtype);
}

std::vector<float> run_loop(const std::string& text, const std::string& fetch) {
  const Graph graph = import_graph(parse_graph(text), "graph", {.roots = {fetch}});
  Interpreter interpreter(graph);
  const Tensor value = interpreter.run({}, {fetch})[0];
  const auto data = value.data<float>();
  return {data.begin(), data.end()};
}

TEST(LoopsAsFunctionsTest, AFrameOfKnownLengthIsUnrolled) {
  EXPECT_THAT(run_loop(array_products(number("n", "DT_INT32", "int_val: 3")), "last"), ElementsAre(30));
}

TEST(LoopsAsFunctionsTest, ArraysBecomeTheirElements) {
  EXPECT_THAT(run_loop(array_products(number("n", "DT_INT32", "int_val: 3")), "stack"),
              ElementsAre(2, 6, 30));
}

TEST(LoopsAsFunctionsTest, TurnsThatDataDecidesAreRefused) {
  const std::string turns =
      node("n", "Placeholder", "", attribute("dtype", "type: DT_INT32") + attribute("shape", "shape {}"));
  EXPECT_THAT(message_of([&] { run_loop(array_products(turns), "last"); }),
              HasSubstr("lists are taken in loops whose number of turns follows from the graph"));
}

TEST(LoopsAsFunctionsTest, TurnsThatDataDecidesBelowALimitCountWhereTheyAreTaken) {
  // As dynamic_rnn with lengths: up to the smaller of the steps and the longest row.
  std::string text = array_products(number("n", "DT_INT32", "int_val: 3"));
  text.replace(text.find("input: 'n'", text.find("name: 'enter_n'")), 10, "input: 'limit'");
  text +=
      node("fed", "Placeholder", "", attribute("dtype", "type: DT_INT32") + attribute("shape", "shape {}")) +
      node("limit", "Minimum", "n fed", kIntLoop);
  const Graph graph = import_graph(parse_graph(text), "graph", {.roots = {"last", "stack"}});
  Interpreter interpreter(graph);
  const auto of = [&](std::int32_t turns, const std::string& fetch) {
    const Tensor value = interpreter.run({{"fed", Tensor::scalar<std::int32_t>(turns)}}, {fetch})[0];
    const auto data = value.data<float>();
    return std::vector<float>(data.begin(), data.end());
  };
  EXPECT_THAT(of(2, "last"), ElementsAre(6));
  EXPECT_THAT(of(2, "stack"), ElementsAre(2, 6, 0));
  EXPECT_THAT(of(0, "last"), ElementsAre(1));
  EXPECT_THAT(of(0, "stack"), ElementsAre(0, 0, 0));
  EXPECT_THAT(of(9, "stack"), ElementsAre(2, 6, 30));
}

TEST(LoopsAsFunctionsTest, FramesInsideOfFramesAreRefused) {
  std::string text = array_products(number("n", "DT_INT32", "int_val: 3"));
  // The body's product enters another frame.
  text.replace(text.find("input: 'product'", text.find("name: 'next_x'")), 16, "input: 'deep'");
  text += node("deep", "Enter", "product", kFloatLoop + attribute("frame_name", "s: 'inner'"));
  EXPECT_THAT(message_of([&] { run_loop(text, "last"); }), HasSubstr("control flow is not supported"));
}

}  // namespace
}  // namespace braid
