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

std::string attr(const std::string& name, const std::string& value) {
  return "attr { key: '" + name + "' value { " + value + " } } ";
}

const std::string kFloat = attr("T", "type: DT_FLOAT"), kInt = attr("T", "type: DT_INT32");

std::string number(const std::string& name, const std::string& type, const std::string& value) {
  return node(name, "Const", "",
              attr("dtype", "type: " + type) +
                  attr("value", "tensor { dtype: " + type + " tensor_shape {} " + value + " }"));
}

std::string enter(const std::string& name, const std::string& input, const std::string& type,
                  bool constant = false) {
  return node(
      name, "Enter", input,
      type + attr("frame_name", "s: 'while'") + attr("is_constant", constant ? "b: true" : "b: false"));
}

/// for (i = 0; i < turns; ++i) { x *= rows[i]; seen[i] = x; }, with rows and seen as arrays.
std::string products(const std::string& turns) {
  const std::string dtype = attr("dtype", "type: DT_FLOAT");
  return number("zero", "DT_INT32", "int_val: 0") + number("start", "DT_FLOAT", "float_val: 1") + turns +
         node("table", "Const", "",
              attr("dtype", "type: DT_FLOAT") +
                  attr("value",
                       "tensor { dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: [2, 3, 5] }")) +
         number("one_out", "DT_INT32", "int_val: 1") +
         node("places", "Range", "zero n one_out", attr("Tidx", "type: DT_INT32")) +
         node("rows", "TensorArrayV3", "n", dtype) +
         node("filled", "TensorArrayScatterV3", "rows places table rows:1", kFloat) +
         node("seen", "TensorArrayV3", "n", dtype) + enter("enter_i", "zero", kInt) +
         enter("enter_x", "start", kFloat) + enter("enter_seen", "seen:1", kFloat) +
         enter("enter_n", "n", kInt, true) + enter("enter_rows", "rows", kInt, true) +
         enter("enter_filled", "filled", kFloat, true) + enter("enter_handle", "seen", kInt, true) +
         node("i", "Merge", "enter_i next_i", kInt) + node("x", "Merge", "enter_x next_x", kFloat) +
         node("kept", "Merge", "enter_seen next_seen", kFloat) + node("less", "Less", "i enter_n", kInt) +
         node("go", "LoopCond", "less") + node("side_i", "Switch", "i go", kInt) +
         node("side_x", "Switch", "x go", kFloat) + node("side_seen", "Switch", "kept go", kFloat) +
         node("at", "Identity", "side_i:1", kInt) + node("of_x", "Identity", "side_x:1", kFloat) +
         // TensorFlow's constants inside of a loop wait for its first variable, whichever that is.
         node("one", "Const", "^of_x",
              attr("dtype", "type: DT_INT32") +
                  attr("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 }")) +
         node("row", "TensorArrayReadV3", "enter_rows at enter_filled", dtype) +
         node("product", "Mul", "side_x:1 row", kFloat) +
         node("write", "TensorArrayWriteV3", "enter_handle at product side_seen:1", kFloat) +
         node("up", "AddV2", "at one", kInt) + node("next_i", "NextIteration", "up", kInt) +
         node("next_x", "NextIteration", "product", kFloat) +
         node("next_seen", "NextIteration", "write", kFloat) + node("last", "Exit", "side_x", kFloat) +
         node("all", "Exit", "side_seen", kFloat) +
         node("stack", "TensorArrayGatherV3", "seen places all", dtype);
}

std::vector<float> run(const std::string& text, const std::string& fetch) {
  const Graph graph = import_graph(parse_graph(text), "graph", {.roots = {fetch}});
  Interpreter interpreter(graph);
  const Tensor value = interpreter.run({}, {fetch})[0];
  const auto data = value.data<float>();
  return {data.begin(), data.end()};
}

TEST(LoopsAsFunctionsTest, AFrameOfKnownLengthIsUnrolled) {
  EXPECT_THAT(run(products(number("n", "DT_INT32", "int_val: 3")), "last"), ElementsAre(30));
}

TEST(LoopsAsFunctionsTest, ArraysBecomeTheirElements) {
  EXPECT_THAT(run(products(number("n", "DT_INT32", "int_val: 3")), "stack"), ElementsAre(2, 6, 30));
}

TEST(LoopsAsFunctionsTest, TurnsThatDataDecidesAreRefused) {
  const std::string turns =
      node("n", "Placeholder", "", attr("dtype", "type: DT_INT32") + attr("shape", "shape {}"));
  EXPECT_THAT(message_of([&] { run(products(turns), "last"); }),
              HasSubstr("lists are taken in loops whose number of turns follows from the graph"));
}

TEST(LoopsAsFunctionsTest, TurnsThatDataDecidesBelowALimitCountWhereTheyAreTaken) {
  // As dynamic_rnn with lengths: up to the smaller of the steps and the longest row.
  std::string text = products(number("n", "DT_INT32", "int_val: 3"));
  text.replace(text.find("input: 'n'", text.find("name: 'enter_n'")), 10, "input: 'limit'");
  text += node("fed", "Placeholder", "", attr("dtype", "type: DT_INT32") + attr("shape", "shape {}")) +
          node("limit", "Minimum", "n fed", kInt);
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
  std::string text = products(number("n", "DT_INT32", "int_val: 3"));
  // The body's product enters another frame.
  text.replace(text.find("input: 'product'", text.find("name: 'next_x'")), 16, "input: 'deep'");
  text += node("deep", "Enter", "product", kFloat + attr("frame_name", "s: 'inner'"));
  EXPECT_THAT(message_of([&] { run(text, "last"); }), HasSubstr("control flow is not supported"));
}

}  // namespace
}  // namespace braid
