// Conditionals as TensorFlow 1 writes them: Switch and Merge.
#include "engine/import/choose_branches.h"

#include <gmock/gmock.h>

#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using testing::Interpreter;

const std::string kFloatType = "attr { key: 'T' value { type: DT_FLOAT } } ";

std::string placeholder(const std::string& name, const std::string& type) {
  return node(name, "Placeholder", "",
              "attr { key: 'dtype' value { type: " + type + " } } attr { key: 'shape' value { shape {} } } ");
}

/// p ? x * x : -x, by tf.cond.
std::string choice(const std::string& inside = "") {
  return placeholder("p", "DT_BOOL") + placeholder("x", "DT_FLOAT") +
         node("cond/pred_id", "Identity", "p", "attr { key: 'T' value { type: DT_BOOL } } ") +
         node("cond/Switch", "Switch", "x cond/pred_id", kFloatType) +
         node("cond/square", "Mul", "cond/Switch:1 cond/Switch:1", kFloatType) +
         node("cond/minus", "Neg", "cond/Switch", kFloatType) + inside +
         node("cond/Merge", "Merge", "cond/minus cond/square",
              kFloatType + "attr { key: 'N' value { i: 2 } } ") +
         node("y", "Identity", "cond/Merge", kFloatType);
}

float run_choice(const std::string& text, bool p, float x) {
  const Graph graph = import_graph(parse_graph(text), "graph", {.roots = {"y"}});
  Interpreter interpreter(graph);
  return interpreter.run({{"p", Tensor::scalar<bool>(p)}, {"x", Tensor::scalar<float>(x)}}, {"y"})[0]
      .data<float>()[0];
}

TEST(ChooseBranchesTest, AMergeIsAChoiceBetweenBothBranches) {
  EXPECT_EQ(run_choice(choice(), true, 3), 9);
  EXPECT_EQ(run_choice(choice(), false, 3), -3);
}

TEST(ChooseBranchesTest, ABranchThatPassesItsValueOnIsOne) {
  std::string text = choice();
  text.replace(text.find("input: 'cond/minus'"), 19, "input: 'cond/Switch'");
  EXPECT_EQ(run_choice(text, true, 3), 9);
  EXPECT_EQ(run_choice(text, false, 3), 3);
}

TEST(ChooseBranchesTest, ConditionalsMayBeNested) {
  // Inside of the branch where p is: q ? x * x : x + x.
  const std::string text = placeholder("q", "DT_BOOL") + placeholder("p", "DT_BOOL") +
                           placeholder("x", "DT_FLOAT") + node("Switch", "Switch", "x p", kFloatType) +
                           node("q_in", "Switch", "q p", "attr { key: 'T' value { type: DT_BOOL } } ") +
                           node("inner", "Switch", "Switch:1 q_in:1", kFloatType) +
                           node("square", "Mul", "inner:1 inner:1", kFloatType) +
                           node("twice", "AddV2", "inner inner", kFloatType) +
                           node("chosen", "Merge", "square twice", kFloatType) +
                           node("minus", "Neg", "Switch", kFloatType) +
                           node("y", "Merge", "chosen minus", kFloatType);
  const Graph graph = import_graph(parse_graph(text), "graph", {.roots = {"y"}});
  Interpreter interpreter(graph);
  const auto of = [&](bool p, bool q) {
    return interpreter
        .run(
            {{"p", Tensor::scalar<bool>(p)}, {"q", Tensor::scalar<bool>(q)}, {"x", Tensor::scalar<float>(3)}},
            {"y"})[0]
        .data<float>()[0];
  };
  EXPECT_EQ(of(true, true), 9);
  EXPECT_EQ(of(true, false), 6);
  EXPECT_EQ(of(false, true), -3);
  EXPECT_EQ(of(false, false), -3);
}

TEST(ChooseBranchesTest, AnAssertHoldsWhereItsBranchIsTaken) {
  const std::string positive = node("zero", "Const", "",
                                    "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' "
                                    "value { tensor { dtype: DT_FLOAT "
                                    "tensor_shape {} float_val: 0 } } } ") +
                               node("cond/positive", "Greater", "cond/Switch:1 zero", kFloatType) +
                               node("cond/Assert", "Assert", "cond/positive x",
                                    "attr { key: 'T' value { list { type: DT_FLOAT } } } ");
  std::string text = choice(positive);
  text.replace(text.find("name: 'y' op: 'Identity' input: 'cond/Merge'"), 44,
               "name: 'y' op: 'Identity' input: 'cond/Merge' input: '^cond/Assert'");
  EXPECT_EQ(run_choice(text, true, 3), 9);
  EXPECT_EQ(run_choice(text, false, -3), 3) << "the branch with the Assert is not taken";
  EXPECT_THAT(message_of([&] { run_choice(text, true, -3); }), HasSubstr("cond/Assert"));
}

TEST(ChooseBranchesTest, NoNanComesOutOfABranchThatIsNotTaken) {
  const std::string kRead = "attr { key: 'dtype' value { type: DT_FLOAT } } ";
  for (const bool inside : {false, true}) {
    // p ? log(w) : w + w where w is 0, which is read before or in the branches.
    const std::string resource = "attr { key: 'T' value { type: DT_RESOURCE } } ";
    const std::string reads =
        inside
            ? node("Switch", "Switch", "w p", resource) + node("right", "ReadVariableOp", "Switch:1", kRead) +
                  node("left", "ReadVariableOp", "Switch", kRead)
            : node("x", "ReadVariableOp", "w", kRead) + node("Switch", "Switch", "x p", kFloatType) +
                  node("right", "Identity", "Switch:1", kFloatType) +
                  node("left", "Identity", "Switch", kFloatType);
    Graph graph = import_graph(
        parse_graph(placeholder("p", "DT_BOOL") +
                    node("w", "VarHandleOp", "", kRead + "attr { key: 'shape' value { shape {} } } ") +
                    reads + node("log", "Log", "right", kFloatType) +
                    node("twice", "AddV2", "left left", kFloatType) +
                    node("loss", "Merge", "twice log", kFloatType + "attr { key: 'N' value { i: 2 } } ")),
        "graph", {.roots = {"loss"}});
    const auto gradients = add_gradients(graph, graph.parse_value("loss"));
    Interpreter interpreter(graph);
    interpreter.variables().emplace("w", Tensor::scalar(0.0f));
    const std::string fetch = graph.value_name(gradients.at(0).dense);
    EXPECT_EQ(interpreter.run({{"p", Tensor::scalar<bool>(false)}}, {fetch})[0].data<float>()[0], 2)
        << "variable read inside: " << inside;
  }
}

TEST(ChooseBranchesTest, AnEffectInsideOfABranchIsRefused) {
  std::string text = choice(node("cond/print", "Print", "cond/square x", kFloatType));
  text.replace(text.find("input: 'cond/square'", text.find("Merge")), 20, "input: 'cond/print'");
  EXPECT_THAT(message_of([&] { import_graph(parse_graph(text), "graph", {.roots = {"y"}}); }),
              HasSubstr("[Print] node 'cond/print': it has an effect inside of a branch of tf.cond"));
}

}  // namespace
}  // namespace braid
