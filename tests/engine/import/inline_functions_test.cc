// Graphs with a FunctionDefLibrary, as TensorFlow 2 exports them: calls become the functions' nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using testing::Interpreter;

std::string library(const std::string& functions) { return "library { " + functions + " }\n"; }

std::string constant(const std::string& name, const std::string& values, int count) {
  return "node { name: '" + name +
         "' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' value { tensor { "
         "dtype: "
         "DT_FLOAT tensor_shape { dim { size: " +
         std::to_string(count) + " } } " + values + " } } } }\n";
}

/// The same inside a function.
std::string inner(const std::string& name, const std::string& op, const std::string& inputs,
                  const std::string& rest = "") {
  std::string text = node(name, op, inputs, rest);
  return "node_def" + text.substr(4);
}

std::string arguments(const std::string& kind, const std::string& names) {
  std::string text;
  std::istringstream stream(names);
  for (std::string name; stream >> name;) text += kind + " { name: '" + name + "' type: DT_FLOAT } ";
  return text;
}

/// `results` are pairs "name=value".
std::string function(const std::string& name, const std::string& inputs, const std::string& results,
                     const std::string& nodes, const std::string& rest = "") {
  std::string outputs, rets;
  std::istringstream stream(results);
  for (std::string pair; stream >> pair;) {
    const std::string key = pair.substr(0, pair.find('='));
    outputs += key + " ";
    rets += "ret { key: '" + key + "' value: '" + pair.substr(key.size() + 1) + "' } ";
  }
  return "function { signature { name: '" + name + "' " + arguments("input_arg", inputs) +
         arguments("output_arg", outputs) + " } " + nodes + rets + rest + " }\n";
}

const std::string kCallTwice = "attr { key: 'f' value { func { name: 'twice' } } }";
const std::string kTwice = function("twice", "x", "y=sum:z:0", inner("sum", "AddV2", "x x"));

std::vector<double> run_inlined(const GraphDef& graph, const std::string& fetch) {
  const Graph loaded = import_graph(graph);
  Interpreter interpreter(loaded);
  const Tensor value = interpreter.run({}, {fetch})[0];
  const auto data = value.data<float>();
  return {data.begin(), data.end()};
}

std::string inlining_error(const std::string& text) {
  return message_of([&] { import_graph(parse_graph(text)); });
}

TEST(InlineFunctionsTest, BothFormsOfCalls) {
  const GraphDef graph =
      parse_graph(library(kTwice) + constant("a", "float_val: 3", 1) + node("b", "twice", "a") +
                  node("c", "StatefulPartitionedCall", "b:0", kCallTwice) + node("d", "Neg", "c"));
  EXPECT_EQ(run_inlined(graph, "d"), (std::vector<double>{-12}));
  EXPECT_EQ(run_inlined(graph, "c"), (std::vector<double>{12}));
  EXPECT_EQ(run_inlined(graph, "b/sum"), (std::vector<double>{6}));
}

// The gradient of a call with a formula of its own is not that of the nodes which the call becomes.
TEST(InlineFunctionsTest, ACallWithAGradientOfItsOwnHasNone) {
  const auto refusal = [](const std::string& gradients, const std::string& call_attrs) {
    Graph graph = import_graph(parse_graph(
        library(kTwice + gradients) +
        node("w", "VarHandleOp", "",
             "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'shape' value { shape { } } }") +
        node("x", "ReadVariableOp", "w", "attr { key: 'dtype' value { type: DT_FLOAT } }") +
        node("c", "PartitionedCall", "x", kCallTwice + call_attrs) + node("loss", "Square", "c:0")));
    return message_of([&] { add_gradients(graph, graph.parse_value("loss")); });
  };
  const auto type = [](const std::string& name) {
    return " attr { key: '_gradient_op_type' value { s: '" + name + "' } }";
  };
  EXPECT_EQ(refusal("", ""), "nothing was thrown");
  EXPECT_EQ(refusal("", type("PartitionedCall-7")), "nothing was thrown")
      << "what TensorFlow 2 writes on every call";
  EXPECT_THAT(refusal("", type("CustomGradient-7")),
              HasSubstr("[Identity] node 'c': has a gradient of its own (tf.custom_gradient: "
                        "'CustomGradient-7')"));
  EXPECT_THAT(refusal("gradient { function_name: 'twice' gradient_func: 'twice_grad' }", ""),
              HasSubstr("[Identity] node 'c': has a gradient of its own (tf.custom_gradient: 'twice_grad')"));
}

TEST(InlineFunctionsTest, ColocationInsideAFunctionIsWithItsOwnNodes) {
  const std::string nodes =
      inner("minus", "Neg", "x") +
      inner("sum", "AddV2", "minus:y:0 minus:y:0",
            "attr { key: '_class' value { list { s: ['loc:@minus', 'loc:@elsewhere'] } } }");
  const Graph graph = import_graph(parse_graph(library(function("f", "x", "y=sum:z:0", nodes)) +
                                               constant("a", "float_val: 3", 1) + node("c", "f", "a") +
                                               node("minus", "Abs", "a")));
  EXPECT_EQ(graph.node(graph.find("c/sum")).colocate_with, graph.find("c/minus"));
}

TEST(InlineFunctionsTest, S3_ACallsStreamAndColocationAreThoseOfItsNodes) {
  const std::string scoped =
      "attr { key: '_stream_id' value { i: 2 } } attr { key: '_include_grad' value { b: false } } "
      "attr { key: '_class' value { list { s: 'loc:@a' } } }";
  const std::string nodes = inner("minus", "Neg", "x") + inner("sum", "AddV2", "minus:y:0 minus:y:0",
                                                               "attr { key: '_stream_id' value { i: 1 } }");
  const std::string functions =
      function("f", "x", "y=sum:z:0", nodes) + function("g", "x", "y=r:y:0", inner("r", "f", "x"));
  const Graph graph = import_graph(parse_graph(library(functions) + constant("a", "float_val: 3", 1) +
                                               node("c", "g", "a", scoped) + node("d", "f", "a")));
  const auto at = [&](const char* name) { return graph.node(graph.find(name)); };
  EXPECT_EQ(at("c").stream, 2);
  EXPECT_EQ(at("c/r/minus").stream, 2) << "over two calls";
  EXPECT_EQ(at("c/r/sum").stream, 1) << "it has its own";
  EXPECT_EQ(at("c/r/minus").colocate_with, graph.find("a"));
  EXPECT_FALSE(at("c/r/minus").include_grad);
  EXPECT_EQ(at("d/minus").stream, kNoStream);
  EXPECT_EQ(at("d/minus").colocate_with, kNoNode);
}

/// f0 negates, and each f_i calls f_(i-1), up to `depth` functions.
std::string nested(int depth) {
  std::string functions = function("f0", "x", "y=r:y:0", inner("r", "Neg", "x"));
  for (int i = 1; i < depth; ++i)
    functions +=
        function("f" + std::to_string(i), "x", "y=r:y:0", inner("r", "f" + std::to_string(i - 1), "x"));
  return library(functions) + constant("a", "float_val: 3", 1) +
         node("b", "f" + std::to_string(depth - 1), "a");
}

TEST(InlineFunctionsTest, LaterOutputsOfCallsInsideFunctions) {
  const std::string two = function("two", "x", "n=minus:y:0 s=square:y:0",
                                   inner("minus", "Neg", "x") + inner("square", "Square", "x"));
  const std::string outer =
      function("outer", "x", "y=sum:z:0",
               inner("call", "PartitionedCall", "x", "attr { key: 'f' value { func { name: 'two' } } }") +
                   inner("named", "two", "x") + inner("sum", "AddV2", "call:output:1 named:s:0"));
  EXPECT_EQ(run_inlined(parse_graph(library(two + outer) + constant("a", "float_val: 3", 1) +
                                    node("b", "outer", "a")),
                        "b"),
            (std::vector<double>{18}));
}

TEST(InlineFunctionsTest, NamedListsOfOutputs) {
  const auto types = [](const std::string& name, const std::string& values) {
    return "attr { key: '" + name + "' value { list { " + values + " } } } ";
  };
  const std::string attrs = types("sparse_types", "type: [DT_INT64, DT_INT64]") +
                            types("Tdense", "type: [DT_FLOAT, DT_INT64]") +
                            types("dense_shapes", "shape { } shape { }");
  const auto text = [](const std::string& name, const std::string& shape, const std::string& values) {
    return node(name, "Const", "",
                "attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value { tensor { dtype: "
                "DT_STRING tensor_shape { " +
                    shape + " } " + values + " } } }");
  };
  // An Example without features, so that the defaults come back.
  const std::string parsed = function(
      "parsed", "s n k d f i", "y=age:z:0",
      inner("parse", "ParseExampleV2", "s n k d n f i", attrs) +
          inner("whole", "Cast", "parse:dense_values:1", "attr { key: 'DstT' value { type: DT_FLOAT } }") +
          inner("age", "AddV2", "parse:dense_values:0 whole:y:0"));
  const std::string graph =
      library(parsed) + text("s", "dim { size: 1 }", "string_val: ''") + text("n", "dim { size: 0 }", "") +
      text("k", "dim { size: 2 }", "string_val: ['p', 'q']") +
      text("d", "dim { size: 2 }", "string_val: ['age', 'whole']") + constant("f", "float_val: 3", 1) +
      node("i", "Const", "",
           "attr { key: 'dtype' value { type: DT_INT64 } } attr { key: 'value' value { tensor { dtype: "
           "DT_INT64 "
           "tensor_shape { } int64_val: 4 } } }") +
      node("y", "parsed", "s n k d f i");
  EXPECT_EQ(run_inlined(parse_graph(graph), "y"), (std::vector<double>{7}));
}

TEST(InlineFunctionsTest, AGuardedAssertionIsTheAssertion) {
  const auto guarded = [](const std::string& checked) {
    const std::string bools = "attr { key: 'T' value { type: DT_BOOL } }";
    const std::string failing =
        function("failing", "c data", "r=same:output:0",
                 inner("check", "Assert", "c data") + inner("same", "Identity", "c ^check", bools));
    const std::string passing =
        function("passing", "c data", "r=same:output:0", inner("same", "Identity", "c", bools));
    return library(failing + passing) + constant("a", "float_val: 3", 1) +
           constant("limit", "float_val: 2", 1) + node("less", "Less", "a limit") +
           node("below", "Squeeze", "less") + node("more", "Greater", "a limit") +
           node("above", "Squeeze", "more") +
           node("guard", "If", checked + " " + checked + " a",
                "attr { key: 'then_branch' value { func { name: 'passing' } } }"
                "attr { key: 'else_branch' value { func { name: 'failing' } } }") +
           node("y", "Identity", "a ^guard");
  };
  EXPECT_EQ(run_inlined(parse_graph(guarded("above")), "y"), (std::vector<double>{3}));
  EXPECT_THROW(run_inlined(parse_graph(guarded("below")), "y"), InvalidArgument);
  // Which branch runs matters when the assertion's condition is another one.
  std::string other = guarded("above");
  other.replace(other.find("input: 'above' input: 'above'"), 29, "input: 'above' input: 'below'");
  EXPECT_THAT(inlining_error(other), HasSubstr("[If] node 'guard': control flow is not supported"));
}

std::string choice(const std::string& condition, const std::string& other_op) {
  const std::string doubled = function("doubled", "x", "r=sum:z:0", inner("sum", "AddV2", "x x"));
  const std::string other = function("other", "x", "r=made:y:0", inner("made", other_op, "x"));
  return library(doubled + other) + constant("a", "float_val: 3", 1) + constant("limit", "float_val: 2", 1) +
         node("compared", condition, "a limit") + node("c", "Squeeze", "compared") +
         node("if", "StatelessIf", "c a",
              "attr { key: 'Tcond' value { type: DT_BOOL } }"
              "attr { key: 'then_branch' value { func { name: 'doubled' } } }"
              "attr { key: 'else_branch' value { func { name: 'other' } } }") +
         node("y", "Neg", "if");
}

TEST(InlineFunctionsTest, BothBranchesAreComputedAndOneIsChosen) {
  EXPECT_EQ(run_inlined(parse_graph(choice("Greater", "Square")), "y"), (std::vector<double>{-6}));
  EXPECT_EQ(run_inlined(parse_graph(choice("Less", "Square")), "y"), (std::vector<double>{-9}));
}

/// The gradient of loss = (c ? log(w) : w + w) by w, where w is 0: of the branch that is taken, not NaN.
double gradient_of_choice(const std::string& taken, bool inside, bool c) {
  const std::string kRead = "attr { key: 'dtype' value { type: DT_FLOAT } }";
  const auto branch = [&](const std::string& name, const std::string& op, const std::string& inputs) {
    if (!inside) return function(name, "x", "r=made:y:0", inner("made", op, inputs));
    const std::string body = inner("x", "ReadVariableOp", "w", kRead) +
                             inner("made", op, inputs == "x" ? "x:value:0" : "x:value:0 x:value:0");
    std::string text = function(name, "w", "r=made:y:0", body);
    return text.replace(text.find("type: DT_FLOAT", text.find("input_arg")), 14, "type: DT_RESOURCE");
  };
  const std::string when_true =
      branch("when_true", taken == "log" ? "Log" : "AddV2", taken == "log" ? "x" : "x x");
  const std::string when_false =
      branch("when_false", taken == "log" ? "AddV2" : "Log", taken == "log" ? "x x" : "x");
  Graph graph = import_graph(parse_graph(
      library(when_true + when_false) +
      node("w", "VarHandleOp", "", kRead + "attr { key: 'shape' value { shape { } } }") +
      node("x", "ReadVariableOp", "w", kRead) +
      node("c", "Placeholder", "",
           "attr { key: 'dtype' value { type: DT_BOOL } } attr { key: 'shape' value { shape {} } }") +
      node("loss", "StatelessIf", inside ? "c w" : "c x",
           "attr { key: 'Tcond' value { type: DT_BOOL } }"
           "attr { key: 'then_branch' value { func { name: 'when_true' } } }"
           "attr { key: 'else_branch' value { func { name: 'when_false' } } }")));
  const auto gradients = add_gradients(graph, graph.parse_value("loss"));
  Interpreter interpreter(graph);
  interpreter.variables().emplace("w", Tensor::scalar(0.0f));
  const std::string fetch = graph.value_name(gradients.at(0).dense);
  return interpreter.run({{"c", Tensor::scalar<bool>(c)}}, {fetch})[0].data<float>()[0];
}

TEST(InlineFunctionsTest, NoNanComesOutOfABranchThatIsNotTaken) {
  for (const bool inside : {false, true}) {
    EXPECT_EQ(gradient_of_choice("log", inside, false), 2) << "variable read inside: " << inside;
    EXPECT_EQ(gradient_of_choice("sum", inside, true), 2) << "variable read inside: " << inside;
    EXPECT_EQ(gradient_of_choice("log", inside, true), std::numeric_limits<double>::infinity());
  }
}

/// Branch `number` of three of a Case: 2 x, x x, -x.
double branch_of_case(int number) {
  const std::string functions = function("first", "x", "r=made:y:0", inner("made", "AddV2", "x x")) +
                                function("second", "x", "r=made:y:0", inner("made", "Mul", "x x")) +
                                function("third", "x", "r=made:y:0", inner("made", "Neg", "x"));
  const Graph graph = import_graph(parse_graph(
      library(functions) + constant("a", "float_val: 3", 1) +
      node("n", "Placeholder", "",
           "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'shape' value { shape {} } }") +
      node("y", "StatelessCase", "n a",
           "attr { key: 'branches' value { list { func { name: 'first' } func { name: 'second' } "
           "func { name: 'third' } } } }")));
  Interpreter interpreter(graph);
  return interpreter.run({{"n", Tensor::scalar<std::int32_t>(number)}}, {"y"})[0].data<float>()[0];
}

TEST(InlineFunctionsTest, ACaseTakesTheBranchOfItsNumberAndTheLastForOthers) {
  EXPECT_EQ(branch_of_case(0), 6);
  EXPECT_EQ(branch_of_case(1), 9);
  EXPECT_EQ(branch_of_case(2), -3);
  EXPECT_EQ(branch_of_case(7), -3);
  EXPECT_EQ(branch_of_case(-1), -3);
}

/// Branches that hand over what a gradient needs, as those of TensorFlow 2: c ? (x x, x) : (-x, none), and
/// the optional's value where c is.
TEST(InlineFunctionsTest, AnOptionalIsTheValueOfTheBranchThatHasOne) {
  const auto branch = [](const std::string& name, const std::string& nodes, const std::string& optional) {
    std::string text = function(name, "x", "r=made:y:0 o=" + optional, nodes);
    const std::size_t at = text.find("name: 'o' type: DT_FLOAT");
    return text.replace(at + 10, 14, "type: DT_VARIANT");
  };
  const std::string functions =
      branch("when_true", inner("made", "Mul", "x x") + inner("some", "OptionalFromValue", "x"),
             "some:optional:0") +
      branch("when_false", inner("made", "Neg", "x") + inner("none", "OptionalNone", ""), "none:optional:0");
  const GraphDef graph = parse_graph(
      library(functions) + constant("a", "float_val: 3", 1) + constant("limit", "float_val: 2", 1) +
      node("compared", "Greater", "a limit") + node("c", "Squeeze", "compared") +
      node("if", "If", "c a",
           "attr { key: 'Tcond' value { type: DT_BOOL } }"
           "attr { key: 'then_branch' value { func { name: 'when_true' } } }"
           "attr { key: 'else_branch' value { func { name: 'when_false' } } }") +
      node("got", "OptionalGetValue", "if:1") + node("y", "Neg", "got ^if") + node("z", "Neg", "if"));
  EXPECT_EQ(run_inlined(graph, "y"), (std::vector<double>{-3}));
  EXPECT_EQ(run_inlined(graph, "z"), (std::vector<double>{-9}));
}

TEST(InlineFunctionsTest, BranchesWithEffectsAreRefused) {
  EXPECT_THAT(inlining_error(choice("Less", "Print")),
              HasSubstr("[StatelessIf] node 'if': control flow is not supported"));
}

TEST(InlineFunctionsTest, CallsMayBeNestedTwoHundredDeep) {
  EXPECT_EQ(run_inlined(parse_graph(nested(200)), "b"), (std::vector<double>{-3}));
  EXPECT_THAT(inlining_error(nested(202)), HasSubstr("calls of functions are nested more than 200 deep"));
}

TEST(InlineFunctionsTest, CallsInsideFunctions) {
  const std::string four =
      function("four", "x", "y=again:y:0",
               inner("once", "twice", "x") + inner("again", "PartitionedCall", "once:y:0", kCallTwice));
  const GraphDef graph =
      parse_graph(library(kTwice + four) + constant("a", "float_val: 3", 1) + node("b", "four", "a"));
  EXPECT_EQ(run_inlined(graph, "b"), (std::vector<double>{12}));
}

TEST(InlineFunctionsTest, SeveralOutputsByName) {
  const std::string best =
      function("best", "x k_unused", "largest=top:values:0 rest=parts:output:1",
               inner("k", "Const", "",
                     "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor { "
                     "dtype: DT_INT32 "
                     "tensor_shape { } int_val: 1 } } }") +
                   inner("axis", "Const", "",
                         "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor "
                         "{ dtype: DT_INT32 "
                         "tensor_shape { } int_val: 0 } } }") +
                   inner("top", "TopKV2", "x k:output:0") +
                   inner("parts", "Split", "axis:output:0 x", "attr { key: 'num_split' value { i: 2 } }"));
  const GraphDef graph = parse_graph(library(best) + constant("a", "float_val: [1, 4, 2, 3]", 4) +
                                     node("b", "best", "a a") + node("c", "Mul", "b:0 b:1"));
  EXPECT_EQ(run_inlined(graph, "b"), (std::vector<double>{4}));
  EXPECT_EQ(run_inlined(graph, "b:1"), (std::vector<double>{2, 3}));
  EXPECT_EQ(run_inlined(graph, "c"), (std::vector<double>{8, 12}));
}

TEST(InlineFunctionsTest, PlaceholdersAreTheCallsAttributes) {
  const std::string leaky =
      function("leaky", "x", "y=relu:activations:0",
               inner("relu", "LeakyRelu", "x", "attr { key: 'alpha' value { placeholder: 'slope' } }"));
  const GraphDef graph = parse_graph(library(leaky) + constant("a", "float_val: -2", 1) +
                                     node("b", "leaky", "a", "attr { key: 'slope' value { f: 0.5 } }"));
  EXPECT_EQ(run_inlined(graph, "b"), (std::vector<double>{-1}));
  EXPECT_THAT(inlining_error(library(leaky) + constant("a", "float_val: -2", 1) + node("b", "leaky", "a")),
              HasSubstr("[leaky] node 'b': function 'leaky' needs attribute 'slope'"));
}

TEST(InlineFunctionsTest, EffectsComeBeforeWhoWaitsForTheCall) {
  const std::string handle =
      "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'shape' value { shape { dim { "
      "size: 1 } } } } attr { key: 'shared_name' value { s: 'v' } }";
  const std::string add = function("add", "v x", "", inner("write", "AssignAddVariableOp", "v x"),
                                   "control_ret { key: 'write' value: 'write' }");
  const GraphDef graph =
      parse_graph(library(add) + node("v", "VarHandleOp", "", handle) + constant("a", "float_val: 3", 1) +
                  node("b", "add", "v a") +
                  node("read", "ReadVariableOp", "v ^b", "attr { key: 'dtype' value { type: DT_FLOAT } }"));
  EXPECT_EQ(run_inlined(graph, "read"), (std::vector<double>{3}));
}

TEST(InlineFunctionsTest, WhatCannotBeExpandedIsNamed) {
  const std::string loop = function("loop", "x", "y=again:y:0", inner("again", "loop", "x"));
  const std::string a = constant("a", "float_val: 3", 1);
  EXPECT_THAT(inlining_error(library(loop) + a + node("b", "loop", "a")),
              HasSubstr("function 'loop' calls itself"));
  EXPECT_THAT(inlining_error(library(kTwice) + a + node("b", "twice", "a a")),
              HasSubstr("[twice] node 'b': function 'twice' takes 1 arguments, the call has 2"));
  EXPECT_THAT(
      inlining_error(library(kTwice) + a +
                     node("b", "PartitionedCall", "a", "attr { key: 'f' value { func { name: 'lost' } } }")),
      HasSubstr("[PartitionedCall] node 'b': attribute 'f': function 'lost' is not supported"));
  const std::string odd = function("odd", "x", "y=f:y:0", inner("f", "NoSuchOp", "x"));
  EXPECT_THAT(inlining_error(library(odd) + a + node("b", "odd", "a")),
              HasSubstr("[NoSuchOp] node 'b/f': the op is not supported"));
}

TEST(InlineFunctionsTest, KeyAndCounterOfRandomNumbersAreTwoOutputs) {
  const std::string integers =
      "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor { "
      "dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 3 int_val: 4 } } }";
  const std::string draw =
      function("draw", "seed shape alg", "y=numbers:output:0",
               inner("stream", "StatelessRandomGetKeyCounter", "seed") +
                   inner("numbers", "StatelessRandomUniformV2", "shape stream:key:0 stream:counter:0 alg"));
  const Graph graph = import_graph(parse_graph(library(draw) + node("pair", "Const", "", integers) +
                                               node("alg", "StatelessRandomGetAlg", "") +
                                               node("y", "draw", "pair pair alg")));
  const Node& numbers = graph.node(graph.find("y/numbers"));
  const NodeId stream = graph.find("y/stream");
  EXPECT_EQ(numbers.inputs[1], (ValueRef{stream, 0}));
  EXPECT_EQ(numbers.inputs[2], (ValueRef{stream, 1}));
}

}  // namespace
}  // namespace braid
