// Which initializers of an ONNX model are parameters.
#include "engine/import/onnx/parameters.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <cmath>

#include "tests/engine/import/onnx/onnx_model.h"

namespace braid::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelProto model(const std::string& producer, const std::string& graph) {
  ModelProto made;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "producer_name: '" + producer + "' graph { " + graph + " }", &made));
  return made;
}

std::string numbers(const std::string& name, const std::string& dims = "dims: 3") {
  return "initializer { name: '" + name + "' data_type: 1 " + dims + " } ";
}

std::string kind(const std::string& name, const std::string& is) {
  return "value_info { name: '" + name +
         "' metadata_props { key: 'pkg.torch.export.graph_signature.InputSpec.kind' value: '" + is + "' } } ";
}

TEST(OnnxParametersTest, AreThoseThatPyTorchSaysAre) {
  const ModelProto each =
      model("pytorch", numbers("w") + numbers("scale", "") + numbers("mean") + numbers("lifted_tensor_0") +
                           numbers("val_1") + kind("w", "PARAMETER") + kind("scale", "PARAMETER") +
                           kind("mean", "BUFFER") + kind("lifted_tensor_0", "CONSTANT_TENSOR"));
  EXPECT_THAT(parameters_of(each), ElementsAre("scale", "w"));
}

TEST(OnnxParametersTest, SettingsOfOperatorsAreNone) {
  const std::string graph =
      numbers("w") + numbers("mean") + numbers("var") + numbers("classes") +
      "node { op_type: 'BatchNormalization' input: ['x', 'w', 'w', 'mean', 'var'] output: 'y' } "
      "node { op_type: 'SoftmaxCrossEntropyLoss' input: ['y', 'label', 'classes'] output: 'loss' } ";
  EXPECT_THAT(parameters_of(model("", graph)), ElementsAre("w"));
}

TEST(OnnxParametersTest, SingleNumbersAreConstantsOfFormulasButForPyTorch) {
  const std::string graph = numbers("w") + numbers("half", "");
  EXPECT_THAT(parameters_of(model("tf2onnx", graph)), ElementsAre("w"));
  EXPECT_THAT(parameters_of(model("pytorch", graph)), ElementsAre("half", "w"));
}

TEST(OnnxParametersTest, NormalisationForInferenceIsToldOf) {
  const std::string begin = "node { name: 'norm' op_type: 'BatchNormalization' input: 'x' output: 'y' ";
  EXPECT_THAT(remarks_on_training(model("", begin + "}")),
              ElementsAre(HasSubstr("1 BatchNormalization, first 'norm', node was exported for inference")));
  EXPECT_THAT(remarks_on_training(model("", begin + "attribute { name: 'training_mode' i: 1 } }")),
              IsEmpty());
}

/// A node with what PyTorch's exporter says that it was: a call of `target` with `arguments`.
std::string called(const std::string& node, const std::string& target, const std::string& arguments) {
  return "node { " + node + " metadata_props { key: 'pkg.torch.onnx.fx_node' value: '%y : [num_users=1] = " +
         "call_function[target=torch.ops.aten." + target + "](args = (" + arguments + "), kwargs = {})' } } ";
}

TEST(OnnxParametersTest, NoGradientPassesWhatPyTorchDetached) {
  const auto gradient = [](const std::string& target) {  // of x * same(x)
    return testing::gradient_by_x(
        testing::onnx_model(18, called("op_type: 'Identity' input: 'x' output: 'same'", target, "%x") +
                                    "node { op_type: 'Mul' input: ['x', 'same'] output: 'y' } " +
                                    testing::onnx_input("x", testing::kOnnxFloat, {}) + testing::kY),
        3);
  };
  EXPECT_EQ(gradient("detach.default"), 3);
  EXPECT_EQ(gradient("alias.default"), 6);
}

/// d log(exp(x) + exp(-x)) / dx = tanh(x).
TEST(OnnxParametersTest, ALogarithmOfSumsHasTheSharesAsGradients) {
  const std::string graph =
      "node { op_type: 'Neg' input: 'x' output: 'minus' } "
      "node { op_type: 'Unsqueeze' input: ['x', 'axis'] output: 'a' } "
      "node { op_type: 'Unsqueeze' input: ['minus', 'axis'] output: 'b' } "
      "node { op_type: 'Concat' input: ['a', 'b'] output: 'both' attribute { name: 'axis' i: 0 type: INT } } "
      "node { op_type: 'ReduceLogSumExp' input: ['both', 'axis'] output: 'y' "
      "attribute { name: 'keepdims' i: 0 type: INT } } "
      "initializer { name: 'axis' data_type: 7 dims: 1 int64_data: 0 } ";
  const std::string text =
      testing::onnx_model(18, graph + testing::onnx_input("x", testing::kOnnxFloat, {}) + testing::kY);
  for (const float x : {-200.0F, -1.0F, 0.0F, 2.0F, 300.0F})
    EXPECT_FLOAT_EQ(testing::gradient_by_x(text, x), std::tanh(x)) << x;
}

TEST(OnnxParametersTest, ADetachThatTheExporterHasRemovedIsToldOf) {
  const auto remarks = [](const std::string& arguments, const std::string& before = "") {
    return remarks_on_training(
        model("pytorch", before + called("name: 'loss' op_type: 'Mul' input: ['x', 'x'] output: 'y'",
                                         "mul.Tensor", arguments)));
  };
  for (const char* arguments : {"%x, %detach", "%detach_12, %x", "[%x, %detach_1], 1"})
    EXPECT_THAT(remarks(arguments),
                ElementsAre(HasSubstr("node 'loss' reads a value that the program detached")))
        << arguments;
  for (const char* arguments : {"%x, %x", "%x, %detached", "%detach_, %x", "%detach_mean, 1"})
    EXPECT_THAT(remarks(arguments), IsEmpty()) << arguments;
  EXPECT_THAT(remarks("%x, %detach",
                      called("op_type: 'Identity' input: 'x' output: 'detach'", "detach.default", "%x")),
              IsEmpty());
}

TEST(OnnxParametersTest, NormalisationOfOldOperatorSetsTrainsWhereItHasSeveralOutputs) {
  NodeProto node;
  node.add_output("y");
  EXPECT_FALSE(normalises_by_batch(node, 9));
  EXPECT_TRUE(normalises_by_batch(node, 6)) << "is_test is 0 where nothing says otherwise";
  for (const char* output : {"mean", "var", "saved_mean", "saved_var"}) node.add_output(output);
  EXPECT_TRUE(normalises_by_batch(node, 9));
  EXPECT_FALSE(normalises_by_batch(node, 14)) << "training_mode says it from here on";
}

/// "metadata_props { ... }" of the graph with a program's parameters.
std::string program_of(const std::vector<std::string>& names) {
  std::string lines;
  for (const std::string& name : names) lines += "p_x: PARAMETER target=\\'" + name + "\\'\\n";
  return "metadata_props { key: 'pkg.torch.export.ExportedProgram.graph_signature' value: '\\n# inputs\\n" +
         lines + "b_mean: BUFFER target=\\'mean\\' persistent=True\\nx: USER_INPUT\\n' } ";
}

TEST(OnnxParametersTest, AreThoseOfTheProgramAndWhatTheExporterMadeOfThem) {
  const std::string folded =
      "value_info { name: 'val_3' metadata_props { key: 'pkg.onnxscript.optimizer.folded_from' value: "
      "\"['gru.weight', 'val_1']\" } } ";
  const ModelProto each =
      model("pytorch", numbers("w") + numbers("mean") + numbers("val_3") + numbers("val_4") + folded +
                           program_of({"w", "gru.weight", "bias"}));
  EXPECT_THAT(parameters_of(each), ElementsAre("val_3", "w"));
  EXPECT_THAT(
      remarks_on_training(each),
      ElementsAre(
          HasSubstr("computed 1 initializers of parameters, and these are trained in their place: 'val_3'"),
          HasSubstr("1 of the program's 3 parameters are not in the file")));
  EXPECT_THAT(remarks_on_training(model("pytorch", numbers("w") + program_of({"w"}))), IsEmpty());
}

TEST(OnnxParametersTest, BuffersOfTheOlderExporterAreToldOfByTheirNames) {
  const ModelProto each = model("pytorch", numbers("fc.weight") + numbers("loss.pos_weight") + numbers("pe"));
  EXPECT_THAT(parameters_of(each), ElementsAre("fc.weight", "pe"));
  EXPECT_THAT(remarks_on_training(each), ElementsAre(HasSubstr("whether 'pe' are parameters or buffers")));
}

TEST(OnnxParametersTest, WeightsInNodesAreToldOf) {
  const std::string constant =
      "node { op_type: 'Constant' output: 'w' attribute { name: 'value' t { data_type: 1 dims: 3 } } } ";
  EXPECT_THAT(
      remarks_on_training(model("", constant + "node { op_type: 'MatMul' input: ['x', 'w'] output: 'y' }")),
      ElementsAre(HasSubstr("1 weights are nodes of Constant, which are not trained: 'w'")));
  EXPECT_THAT(
      remarks_on_training(model("", constant + "node { op_type: 'Add' input: ['x', 'w'] output: 'y' }")),
      IsEmpty());
}

}  // namespace
}  // namespace braid::onnx
