#include "engine/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/import/check.h"
#include "engine/import/nearest_name.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Interpreter;

const std::string kFloats = R"(attr { key: "dtype" value { type: DT_FLOAT } } )";

std::string constant(const std::string& name, float value) {
  return "node { name: '" + name + "' op: 'Const' " + kFloats +
         "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: " +
         std::to_string(value) + " } } } }\n";
}

std::string variable(const std::string& name) {
  return "node { name: '" + name + "' op: 'VariableV2' " + kFloats +
         "attr { key: 'shape' value { shape {} } } }\n";
}

std::string error_of(const std::string& text) {
  return message_of([&] { import_graph(parse_graph(text), "file.pbtxt"); });
}

float run_scalar(Interpreter& interpreter, const std::string& fetch) {
  return interpreter.run({}, {fetch})[0].data<float>()[0];
}

TEST(ImportTest, NodesMayStandInAnyOrder) {
  const Graph graph = import_graph(parse_graph(node("y", "AddV2", "a:0 b ^go") + node("go", "NoOp", "") +
                                               constant("a", 1) + constant("b", 2)));
  EXPECT_EQ(graph.node(graph.find("y")).control_inputs, std::vector<NodeId>{graph.find("go")});
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "y"), 3);
}

TEST(ImportTest, AllOffendingNodesAreNamedAtOnce) {
  const std::string message =
      error_of(constant("alpha", 1) + node("x", "FooBar", "alpha") + node("y", "Relu", "alpah") +
               node("z", "AddV2", "alpha") + node("after_x", "Relu", "x") + constant("alpha", 2) +
               node("w", "Relu", "alpha:one") + node("v", "Relu", "alpha:3"));
  EXPECT_THAT(message, HasSubstr("file.pbtxt: 6 of 8 nodes cannot be loaded:"));
  EXPECT_THAT(message, HasSubstr("\n  [FooBar] node 'x': the op is not supported"));
  EXPECT_THAT(message, HasSubstr("\n  [Relu] node 'y': input 'alpah' does not exist; did you mean 'alpha'?"));
  EXPECT_THAT(message, HasSubstr("\n  [AddV2] node 'z': expected 2 inputs, got 1"));
  EXPECT_THAT(message, HasSubstr("\n  [Const] node 'alpha': another node has this name"));
  EXPECT_THAT(message, HasSubstr("\n  [Relu] node 'w': input 'alpha:one' is not of the form"));
  EXPECT_THAT(message,
              HasSubstr("\n  [Relu] node 'v': input 'alpha:3' does not exist: 'alpha' has 1 output"));
  EXPECT_EQ(message.find("after_x"), std::string::npos);
}

TEST(ImportTest, NearbyNamesAreSoughtForTheFirstMissingOnesOnly) {
  std::string text = constant("alpha", 1);
  for (int i = 0; i < 150; ++i) text += node("n" + std::to_string(i), "Relu", "alpah");
  const std::string message = error_of(text);
  std::size_t hints = 0;
  for (std::size_t at = 0; (at = message.find("did you mean", at)) != std::string::npos; ++at) ++hints;
  EXPECT_EQ(hints, 100U);
  EXPECT_THAT(message, HasSubstr("[Relu] node 'n149': input 'alpah' does not exist"));
}

TEST(ImportTest, ACycleIsNamed) {
  EXPECT_THAT(error_of(node("a", "Relu", "b") + node("b", "Relu", "a")),
              HasSubstr("[Relu] node 'b': is on a cycle: 'b' -> 'a' -> 'b'"));
}

TEST(ImportTest, APlaceholderOfAnOldGraphHasNoShapeWhereItSaysScalar) {
  const std::string x = node("x", "Placeholder", "", kFloats + "attr { key: 'shape' value { shape { } } }");
  const auto has_rank = [](const Graph& graph) {
    return graph.info(graph.parse_value("x")).shape.has_rank();
  };
  EXPECT_FALSE(has_rank(import_graph(parse_graph(x + "versions { producer: 21 }"))));
  EXPECT_TRUE(has_rank(import_graph(parse_graph(x + "versions { producer: 27 }"))));
  EXPECT_TRUE(has_rank(import_graph(parse_graph(x))));
}

TEST(ImportTest, AttributesThatAreLeftOutHaveTensorFlowsDefaultsAndUnknownOnesAreIgnored) {
  const Graph graph = import_graph(
      parse_graph("node { name: 'm' op: 'Const' " + kFloats +
                  "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 1 "
                  "} dim { size: 1 } } float_val: -3 } } } }" +
                  node("y", "MatMul", "m m:0") +
                  node("z", "LeakyRelu", "m", "attr { key: 'colour' value { s: 'red' } }")));
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "y"), 9);
  EXPECT_FLOAT_EQ(run_scalar(interpreter, "z"), -0.6F);
}

TEST(ImportTest, AGatherWithBatchAxesTakesRowsOfItsOwnBatch) {
  const std::string ints =
      "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor { dtype: DT_INT32 ";
  const Graph graph = import_graph(
      parse_graph("node { name: 'p' op: 'Const' " + ints +
                  "tensor_shape { dim { size: 2 } dim { size: 2 } } int_val: [1, 2, 3, 4] } } } }" +
                  "node { name: 'i' op: 'Const' " + ints +
                  "tensor_shape { dim { size: 2 } dim { size: 1 } } int_val: [1, 0] } } } }" +
                  "node { name: 'a' op: 'Const' " + ints + "tensor_shape { } int_val: 1 } } } }" +
                  node("y", "GatherV2", "p i a", "attr { key: 'batch_dims' value { i: 1 } }")));
  Interpreter interpreter(graph);
  EXPECT_THAT(tensor_to_int64s(interpreter.run({}, {"y"})[0]), ElementsAre(2, 3));
}

TEST(ImportTest, OtherNamesOfOpsAreKnown) {
  const Graph graph = import_graph(parse_graph(constant("a", 1) + node("sum", "AccumulateNV2", "a a") +
                                               node("same", "GuaranteeConst", "sum")));
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "same"), 2);
}

TEST(ImportTest, NormsAndCrossProductsBecomeOpsThatAreThere) {
  const auto vector = [](const std::string& name, const std::string& type, const std::string& values) {
    return "node { name: '" + name + "' op: 'Const' attr { key: 'dtype' value { type: " + type +
           " } } attr { key: 'value' value { tensor { dtype: " + type + " tensor_shape { dim { size: 3 } } " +
           values + " } } } }\n";
  };
  const Graph graph = import_graph(parse_graph(
      vector("a", "DT_FLOAT", "float_val: [1, 2, 2]") + vector("b", "DT_FLOAT", "float_val: [3, -1, 4]") +
      "node { name: 'zero' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' "
      "value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } }" +
      node("norm", "EuclideanNorm", "a zero") + node("cross", "Cross", "a b")));
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "norm"), 3);
  EXPECT_THAT(interpreter.run({}, {"cross"})[0].data<float>(), ElementsAre(10, 2, -7));
}

/// What sampled losses subtract from the logits of sampled classes that are true ones of the row.
TEST(ImportTest, AccidentalHitsAreComparisons) {
  const auto longs = [](const std::string& name, const std::string& dims, const std::string& values) {
    return node(
        name, "Const", "",
        "attr { key: 'dtype' value { type: DT_INT64 } } attr { key: 'value' value { tensor { dtype: DT_INT64 "
        "tensor_shape { " +
            dims + " } " + values + " } } } ");
  };
  const auto ints = [](const std::string& name, const std::string& dims, const std::string& values) {
    return node(
        name, "Const", "",
        "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor { dtype: DT_INT32 "
        "tensor_shape { " +
            dims + " } " + values + " } } } ");
  };
  const std::string text =
      longs("true", "dim { size: 2 } dim { size: 2 }",
            "int64_val: 1 int64_val: 7 int64_val: 3 int64_val: 3") +
      longs("sampled", "dim { size: 3 }", "int64_val: 7 int64_val: 5 int64_val: 3") +
      node("hits", "ComputeAccidentalHits", "true sampled", "attr { key: 'num_true' value { i: 2 } } ") +
      ints("column", "dim { size: 2 }", "int_val: -1 int_val: 1") + ints("axis", "", "int_val: 1") +
      ints("shape", "dim { size: 2 }", "int_val: 2 int_val: 3") + node("rows", "Reshape", "hits column") +
      node("ids", "Cast", "hits:1",
           "attr { key: 'SrcT' value { type: DT_INT64 } } attr { key: 'DstT' value { type: DT_INT32 } } ") +
      node("columns", "Reshape", "ids column") +
      node("pairs", "ConcatV2", "rows columns axis", "attr { key: 'N' value { i: 2 } } ") +
      node("none", "Const", "",
           "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' value { tensor { dtype: "
           "DT_FLOAT "
           "tensor_shape {} float_val: 0 } } } ");
  const std::string dense = node("dense", "SparseToDense", "pairs shape hits:2 none");
  const Graph graph = import_graph(parse_graph(text + dense), "graph", {.roots = {"dense"}});
  Interpreter interpreter(graph);
  const Tensor found = interpreter.run({}, {"dense"})[0];
  EXPECT_EQ(found.shape(), (Shape{2, 3}));
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  const std::vector<float> expected{kLeast, 0, 0, 0, 0, kLeast};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.data<float>().begin()));
  // Where somebody else reads the pairs there is no such form.
  EXPECT_THAT(message_of([&] {
                import_graph(parse_graph(text + dense + node("more", "Identity", "pairs")), "graph",
                             {.roots = {"dense", "more"}});
              }),
              HasSubstr("[ComputeAccidentalHits] node 'hits'"));
}

TEST(ImportTest, StringsThatNobodyReadsAreNotRestored) {
  const auto words = [](const std::string& name, const std::string& texts) {
    return "node { name: '" + name +
           "' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: "
           "'value' value { tensor { dtype: DT_STRING tensor_shape { dim { size: 3 } } string_val: [" +
           texts + "] } } } }\n";
  };
  const Graph graph = import_graph(parse_graph(
      "node { name: 'file' op: 'Placeholder' attr { key: 'dtype' value { type: DT_STRING } } attr { "
      "key: 'shape' "
      "value { shape {} } } }\n" +
      words("names", "'a', 'objects', 'b'") + words("slices", "'', '', ''") +
      node("restore", "RestoreV2", "file names slices",
           "attr { key: 'dtypes' value { list { type: [DT_FLOAT, DT_STRING, DT_INT32] } } }") +
      node("b", "Identity", "restore:2")));
  const Node& restore = graph.node(graph.find("restore"));
  ASSERT_EQ(restore.outputs.size(), 2u);
  const Tensor* names = graph.known_value(restore.inputs[1]);
  EXPECT_EQ(std::string(names->string_at(0)) + std::string(names->string_at(1)), "ab");
  EXPECT_EQ(graph.node(graph.find("b")).outputs[0].dtype, DType::Int32);
}

TEST(ImportTest, SumsOfStringsJoinThem) {
  const auto word = [](const std::string& name, const std::string& text) {
    return "node { name: '" + name +
           "' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: "
           "'value' value { tensor { dtype: DT_STRING tensor_shape {} string_val: '" +
           text + "' } } } }\n";
  };
  const Graph graph =
      import_graph(parse_graph(word("a", "in") + word("b", "put") +
                               node("y", "AddV2", "a b", "attr { key: 'T' value { type: DT_STRING } }")));
  ASSERT_NE(graph.known_value({graph.find("y"), 0}), nullptr);
  EXPECT_EQ(graph.known_value({graph.find("y"), 0})->string_at(0), "input");
}

TEST(ImportTest, AnEinsumsLabelsOfOneOperandAloneAreSummedBefore) {
  const auto matrix = [](const std::string& name, const std::string& values) {
    return node(name, "Const", "",
                "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' value { tensor { dtype: "
                "DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 2 } } " +
                    values + " } } }");
  };
  const Graph graph = import_graph(
      parse_graph(matrix("a", "float_val: [1, 2, 3, 4]") + matrix("b", "float_val: [5, 6, 7, 8]") +
                  node("y", "Einsum", "a b", "attr { key: 'equation' value { s: 'ij, jk -> j' } }")));
  Interpreter interpreter(graph);
  const Tensor y = interpreter.run({}, {"y"})[0];
  EXPECT_THAT(y.data<float>(), ::testing::ElementsAre((1 + 3) * (5 + 6), (2 + 4) * (7 + 8)));
}

TEST(ImportTest, WindowsOfPoolingMayBeConstants) {
  const std::string ints =
      "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor { dtype: DT_INT32 "
      "tensor_shape { dim { size: 4 } } int_val: [1, 2, 2, 1] } } } }";
  const std::string image = "node { name: 'x' op: 'Const' " + kFloats +
                            "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: "
                            "1 } dim { size: 2 } dim { "
                            "size: 2 } dim { size: 1 } } float_val: [1, 4, 3, 2] } } } }";
  const std::string valid = "attr { key: 'padding' value { s: 'VALID' } }";
  const Graph graph = import_graph(
      parse_graph(image + "node { name: 'w' op: 'Const' " + ints + node("y", "MaxPoolV2", "x w w", valid)));
  Interpreter interpreter(graph);
  EXPECT_EQ(interpreter.run({}, {"y"})[0].data<float>()[0], 4);
  EXPECT_THAT(
      error_of(image + "node { name: 'w' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT32 } } }" +
               node("y", "MaxPoolV2", "x w w", valid)),
      HasSubstr("[MaxPoolV2] node 'y': ksize must be a constant"));
}

TEST(ImportTest, TextsThatNameNoDeviceAreRefused) {
  EXPECT_THAT(error_of("node { name: 'a' op: 'NoOp' device: '/job:worker/gpux:0' }"),
              HasSubstr("[NoOp] node 'a': device '/job:worker/gpux:0' is not a device's name"));
  EXPECT_NO_THROW(
      import_graph(parse_graph("node { name: 'a' op: 'NoOp' device: '/job:ps/task:*/device:GPU:2' }")));
}

TEST(ImportTest, ControlFlowIsRefusedAsSuch) {
  EXPECT_THAT(error_of(constant("a", 1) + node("m", "Merge", "a a")),
              HasSubstr("[Merge] node 'm': control flow is not supported"));
  EXPECT_THAT(error_of(constant("a", 1) + node("c", "StatelessIf", "a a",
                                               "attr { key: 'then_branch' value { func { name: 'f' } } }")),
              HasSubstr("[StatelessIf] node 'c': control flow is not supported"));
}

TEST(ImportTest, RootsLimitWhatIsLoadedAndChecked) {
  const GraphDef graph = parse_graph(constant("a", 1) + node("y", "Relu", "a") + node("save", "SaveV9", "a"));
  EXPECT_THROW(import_graph(graph), InvalidArgument);
  const Graph loaded = import_graph(graph, "graph", {.roots = {"y:0"}});
  EXPECT_EQ(loaded.size(), 2);
  EXPECT_THROW(import_graph(graph, "graph", {.roots = {"nothing"}}), InvalidArgument);
}

TEST(ImportTest, AnnotationsBecomeFields) {
  const Graph graph = import_graph(
      parse_graph(constant("a", 1) + node("y", "Relu", "a",
                                          "device: '/cpu:0' attr { key: '_stream_id' value { i: 3 } } "
                                          "attr { key: '_include_grad' value { b: false } } "
                                          "attr { key: '_class' value { list { s: 'loc:@a' } } } attr "
                                          "{ key: '_hint' value { func { name: 'x' } } }")));
  const Node& y = graph.node(graph.find("y"));
  EXPECT_EQ(y.stream, 3);
  EXPECT_FALSE(y.include_grad);
  EXPECT_EQ(y.colocate_with, graph.find("a"));
  EXPECT_EQ(y.device, "/cpu:0");
  EXPECT_THAT(
      error_of(constant("a", 1) + node("y", "Relu", "a", "attr { key: '_stream_id' value { i: -2 } }")),
      HasSubstr("attribute '_stream_id': -2 is not a stream"));
}

// ------------------------------------------------------------------------------------------------ reference
// variables

TEST(LowerVariablesTest, AVariableKeepsItsNameForItsValue) {
  const Graph graph = import_graph(parse_graph(variable("v") + node("y", "AddV2", "v v")));
  const std::vector<VariableInfo> variables = list_variables(graph);
  ASSERT_EQ(variables.size(), 1u);
  EXPECT_EQ(variables[0].name, "v");
  Interpreter interpreter(graph);
  interpreter.variables()["v"] = Tensor::scalar<float>(4);
  EXPECT_EQ(run_scalar(interpreter, "v"), 4);
  EXPECT_EQ(run_scalar(interpreter, "y"), 8);
}

TEST(LowerVariablesTest, AnAssignmentsOutputIsTheNewValue) {
  const Graph graph =
      import_graph(parse_graph(variable("v") + constant("c", 5) + node("set", "Assign", "v c") +
                               node("more", "AssignAdd", "set c") + node("y", "Neg", "more")));
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "y"), -10);
  EXPECT_EQ(interpreter.variables()["v"].data<float>()[0], 10);
  EXPECT_EQ(run_scalar(interpreter, "more"), 10);
  EXPECT_EQ(run_scalar(interpreter, "set"), 5);
}

TEST(LowerVariablesTest, ReadsPrecedeWritesUnlessAControlEdgeSaysOtherwise) {
  const Graph graph = import_graph(
      parse_graph(variable("v") + constant("one", 1) + node("set", "AssignAdd", "v one") +
                  node("before", "Identity", "v") + node("after", "Identity", "v ^set") +
                  node("after_too", "Mul", "v one ^set") + node("all", "NoOp", "^before ^after ^after_too")));
  Interpreter interpreter(graph);
  const std::vector<Tensor> values = interpreter.run({}, {"before", "after", "after_too"});
  EXPECT_EQ(values[0].data<float>()[0], 0);
  EXPECT_EQ(values[1].data<float>()[0], 1);
  EXPECT_EQ(values[2].data<float>()[0], 1);
}

TEST(LowerVariablesTest, AnIdentityOfAVariableShowsWhatWasWrittenBeforeItsUserRuns) {
  // TensorFlow's accumulators: what is added reaches the update through an edge of the learning rate alone.
  const Graph graph = import_graph(parse_graph(
      variable("v") + node("read", "Identity", "v") + constant("one", 1) + node("add", "AssignAdd", "v one") +
      node("rate", "Identity", "one ^add") + node("after", "Mul", "rate read") +
      node("copy", "Identity", "read ^add") + node("before", "Neg", "read") +
      node("reset", "Assign", "v ten ^after") + constant("ten", 10) +
      node("last", "Identity", "read ^reset") + node("all", "NoOp", "^before ^last")));
  Interpreter interpreter(graph);
  const std::vector<Tensor> values = interpreter.run({}, {"before", "after", "copy", "last"});
  EXPECT_EQ(values[0].data<float>()[0], 0);
  EXPECT_EQ(values[1].data<float>()[0], 1);
  EXPECT_EQ(values[2].data<float>()[0], 1);
  EXPECT_EQ(values[3].data<float>()[0], 10);
}

TEST(LowerVariablesTest, AComputedAssignmentLeavesWhatWasReadThroughAnIdentity) {
  // It takes the place of the variable's memory, which the Identity still holds.
  const Graph graph = import_graph(parse_graph(
      variable("v") + node("read", "Identity", "v") + constant("one", 1) + node("next", "AddV2", "read one") +
      node("set", "Assign", "v next") + node("old", "Mul", "read one ^set")));
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "old"), 0);
}

TEST(LowerVariablesTest, OptimizersTakeTheHandlesOfVariableAndSlots) {
  const ImportResult result = try_import_graph(parse_graph(
      variable("v") + variable("slot") + constant("lr", 0.5) + constant("g", 2) + constant("m", 0) +
      node("sgd", "ApplyGradientDescent", "v lr g") + node("momentum", "ApplyMomentum", "v slot lr g m")));
  ASSERT_THAT(result.problems, ::testing::IsEmpty());
  const NodeId sgd = result.graph.find("sgd");
  ASSERT_NE(sgd, kNoNode);
  Interpreter interpreter(result.graph);
  interpreter.run({}, {}, {"sgd"});
  EXPECT_EQ(interpreter.variables()["v"].data<float>()[0], -1);
}

TEST(LowerVariablesTest, AFrozenVariableMayBeAssigned) {
  const Graph graph = import_graph(parse_graph(constant("v", 7) + constant("c", 5) +
                                               node("set", "Assign", "v c") + node("y", "Neg", "set")));
  Interpreter interpreter(graph);
  EXPECT_EQ(run_scalar(interpreter, "y"), -5);
  EXPECT_THAT(error_of(constant("v", 7) + constant("c", 5) + node("set", "AssignAdd", "v c")),
              HasSubstr("[AssignAdd] node 'set': input 0 ('v') is not a variable"));
}

// --------------------------------------------------------------------------------------------------------------
// checks

TEST(CheckTest, FindingsAreGroupedByOpAndReason) {
  const GraphCheck check =
      check_graph(parse_graph(constant("a", 1) + node("x", "Foo", "a") + node("y", "Foo", "a") +
                              node("z", "Bar", "a") + node("ok", "Relu", "a")));
  ASSERT_EQ(check.findings.size(), 2u);
  EXPECT_EQ(check.findings[0].op, "Foo");
  EXPECT_THAT(check.findings[0].nodes, ElementsAre("x", "y"));
  EXPECT_THAT(format_check(check, 1), HasSubstr("3 of 5 nodes cannot be loaded:"));
  EXPECT_THAT(format_check(check, 1), HasSubstr("the op is not supported (x, ...)"));
  EXPECT_TRUE(check_graph(parse_graph(constant("a", 1))).ok());
}

TEST(NearestNameTest, FindsTheCloseOneAndOnlyThat) {
  EXPECT_EQ(nearest_name("dense/kernal", {"dense/bias", "dense/kernel", "dense_1/kernel"}), "dense/kernel");
  EXPECT_EQ(nearest_name("x", {"abc", "yz"}), "");
  EXPECT_EQ(nearest_name("b", {"a", "b"}), "b");
}

}  // namespace
}  // namespace braid
