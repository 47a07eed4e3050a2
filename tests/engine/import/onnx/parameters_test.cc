// Which initializers of an ONNX model are parameters.
#include "engine/import/onnx/parameters.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

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

}  // namespace
}  // namespace braid::onnx
