// What the importer of ONNX models does around the operators: names, initializers, problems, functions.
#include "engine/import/onnx/onnx.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "engine/import/onnx/tensors.h"
#include "engine/import/onnx/write_values.h"
#include "tests/engine/import/onnx/onnx_model.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OnnxImportTest, InitializersAreReadFromRawDataAndFromLists) {
  const std::string text =
      onnx_model(13,
                 "node { op_type: \"Add\" input: \"x\" input: \"a\" output: \"xa\" }"
                 "node { op_type: \"Mul\" input: \"xa\" input: \"b\" output: \"y\" }"
                 "initializer { name: \"a\" dims: 2 data_type: 1 float_data: [1, 2] }"
                 "initializer { name: \"b\" dims: 1 data_type: 1 raw_data: \"\\000\\000\\000\\100\" }" +
                     onnx_input("x", kOnnxFloat, {-1, 2}) + kY);
  EXPECT_THAT(float_values(run_onnx(text, {{"x", floats({2, 2}, {0, 0, 3, 3})}})), ElementsAre(2, 4, 8, 10));
}

TEST(OnnxImportTest, AnInitializerThatIsAnInputIsItsDefault) {
  const std::string text = onnx_model(13,
                                      "node { op_type: \"Neg\" input: \"x\" output: \"y\" }"
                                      "initializer { name: \"x\" dims: 1 data_type: 1 float_data: 3 }" +
                                          onnx_input("x", kOnnxFloat, {1}) + kY);
  EXPECT_THAT(float_values(run_onnx(text, {})), ElementsAre(-3));
}

TEST(OnnxImportTest, WeightsOfFourBitsAreDequantizedAndNothingElse) {
  const std::string weights =
      "initializer { name: \"w\" data_type: 22 dims: 3 raw_data: \"\\x7f\\x08\" } "
      "initializer { name: \"scale\" data_type: 1 float_data: 0.5 } output { name: \"y\" } ";
  const std::string used =
      "node { op_type: \"DequantizeLinear\" input: \"w\" input: \"scale\" output: \"y\" } ";
  EXPECT_THAT(float_values(run_onnx(onnx_model(21, used + weights), {})), ElementsAre(-0.5, 3.5, -4));
  const TempDir dir;
  const std::string copied = "node { op_type: \"Identity\" input: \"w\" output: \"y\" } ";
  EXPECT_THAT(message_of([&] { import_onnx(write_onnx(dir, onnx_model(21, copied + weights))); }),
              HasSubstr("of 4-bit integers only DequantizeLinear is supported"));
}

TEST(OnnxImportTest, ExternalDataIsReadBesideTheModelAndNowhereElse) {
  const auto text = [](const std::string& location) {
    return onnx_model(
        13,
        "node { op_type: \"Neg\" input: \"w\" output: \"y\" } initializer { name: \"w\" dims: 2 "
        "data_type: 1 data_location: EXTERNAL external_data { key: \"location\" value: \"" +
            location + "\" } external_data { key: \"offset\" value: \"4\" } } " + kY);
  };
  const TempDir dir;
  const std::vector<float> values{7, 1, 2};
  std::ofstream(dir.path() / "weights.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), sizeof(float) * 3);
  const OnnxImport model = import_onnx(write_onnx(dir, text("weights.bin")));
  EXPECT_EQ(model.graph.node_size(), 2);
  EXPECT_EQ(model.graph.node(0).attr().at("value").tensor().tensor_content().size(), 8);

  EXPECT_THAT(message_of([&] { import_onnx(write_onnx(dir, text("../weights.bin"))); }),
              HasSubstr("location '../weights.bin' is not below the model's folder"));
  EXPECT_THAT(message_of([&] { import_onnx(write_onnx(dir, text("missing.bin"))); }),
              HasSubstr("cannot read 8 bytes at 4"));
}

TEST(OnnxImportTest, EveryProblemIsReportedAtOnce) {
  const std::string text = onnx_model(
      13,
      "node { name: \"first\" op_type: \"NoSuchOp\" input: \"x\" output: \"a\" }"
      "node { name: \"behind\" op_type: \"Neg\" input: \"a\" output: \"b\" }"
      "node { op_type: \"Softmax\" input: \"x\" output: \"c\" attribute { name: \"axis\" i: 7 type: INT } }"
      "node { name: \"other\" op_type: \"Thing\" domain: \"my.domain\" input: \"x\" output: \"d\" }"
      "node { op_type: \"Add\" input: \"x\" input: \"nobody\" output: \"e\" }" +
          onnx_input("x", kOnnxFloat, {2}) + "output { name: \"b\" } output { name: \"c\" }");
  const TempDir dir;
  EXPECT_THAT(message_of([&] { import_onnx(write_onnx(dir, text)); }),
              AllOf(HasSubstr("4 of 5 nodes cannot be translated"),
                    HasSubstr("[NoSuchOp] node 'first': the op is not supported"),
                    HasSubstr("[Softmax] node 'c': axis 7 is not one of 1 axes"),
                    HasSubstr("[my.domain:Thing] node 'other': the op is not supported"),
                    HasSubstr("[Add] node 'e': its input 'nobody' does not exist"),
                    ::testing::Not(HasSubstr("behind"))));
}

TEST(OnnxImportTest, AFileThatIsNoModelIsRefused) {
  const TempDir dir;
  std::ofstream(dir.path() / "text.onnx") << "not a model";
  EXPECT_THAT(message_of([&] { import_onnx(dir.path() / "text.onnx"); }),
              HasSubstr("text.onnx: not an ONNX model"));
}

TEST(OnnxImportTest, NamesOfInputsAndOutputsStay) {
  const std::string text =
      onnx_model(13,
                 "node { op_type: \"Identity\" input: \"in:0\" output: \"/net/out\" }"
                 "node { op_type: \"Split\" input: \"in:0\" output: \"a:1\" output: \"b\" }" +
                     onnx_input("in:0", kOnnxFloat, {4}) +
                     "output { name: \"/net/out\" } output { name: \"a:1\" } output { name: \"b\" }");
  const TempDir dir;
  const OnnxImport model = import_onnx(write_onnx(dir, text));
  ASSERT_EQ(model.inputs.size(), 1U);
  EXPECT_EQ(model.inputs[0].name, "in");
  ASSERT_EQ(model.outputs.size(), 3U);
  EXPECT_EQ(model.outputs[0].name, "/net/out");
  EXPECT_EQ(model.outputs[1].name, "a_1");
  EXPECT_EQ(model.outputs[2].shape, Shape({2}));
  std::set<std::string> names;
  for (const auto& node : model.graph.node()) names.insert(node.name());
  EXPECT_EQ(names.count("/net/out") + names.count("a_1") + names.count("b") + names.count("in"), 4U);
}

TEST(OnnxImportTest, NamesThatWouldBecomeEqualGetNumbers) {
  const auto of = [](const std::string& name, float value) {
    return fmt::format("initializer {{ name: '{}' data_type: 1 dims: 1 float_data: {} }} ", name, value);
  };
  const std::string text =
      onnx_model(13, of("w:0", 1) + of("w", 2) + of("w 0", 3) +
                         "node { op_type: 'Sum' input: ['x', 'w:0', 'w', 'w 0'] output: 'y' }" +
                         onnx_input("x", kOnnxFloat, {1}) + kY);
  const TempDir dir;
  EXPECT_THAT(import_onnx(write_onnx(dir, text)).parameters, ElementsAre("w_1", "w", "w_0"))
      << "the clean name stays, whoever comes first";
  EXPECT_THAT(float_values(run_onnx(text, {{"x", floats({1}, {10})}})), ElementsAre(16));
}

/// Batch normalisation, and dropout in training mode.
std::string training_model() {
  const auto of = [](const std::string& name, float value) {
    return fmt::format("initializer {{ name: '{}' data_type: 1 dims: 1 float_data: {} }} ", name, value);
  };
  return onnx_model(
      17, of("s", 1) + of("b", 0) + of("mean", 0.5) + of("var", 4) +
              "initializer { name: 'on' data_type: 9 int32_data: 1 } "
              "node { op_type: 'BatchNormalization' input: ['x', 's', 'b', 'mean', 'var'] "
              "output: ['n', 'next', 'next_var'] attribute { name: 'training_mode' type: INT i: 1 } "
              "attribute { name: 'epsilon' type: FLOAT f: 0 } } "
              "node { op_type: 'Dropout' input: ['n', '', 'on'] output: 'y' } " +
              onnx_input("x", kOnnxFloat, {-1, 1}) + kY);
}

TEST(OnnxImportTest, WhatTrainsIsAsInInferenceWhereThatIsAsked) {
  const TempDir dir;
  const std::string file = write_onnx(dir, training_model());
  const OnnxImport trains = import_onnx(file);
  EXPECT_TRUE(trains.trains);
  ASSERT_EQ(trains.statistics.size(), 2U);
  EXPECT_EQ(trains.statistics[0].node, "mean");
  EXPECT_EQ(trains.statistics[0].next, "next");
  EXPECT_EQ(trains.statistics[1].next, "next_var");
  const OnnxImport infers = import_onnx(file, {}, OwnNodes::Made, OnnxUse::Inference);
  EXPECT_TRUE(infers.trains);
  ASSERT_EQ(infers.statistics.size(), 2U);
  EXPECT_EQ(infers.statistics[1].node, "var");
  EXPECT_EQ(infers.statistics[1].next, "");
  EXPECT_THAT(
      float_values(run_onnx(training_model(), {{"x", floats({2, 1}, {2.5, 4.5})}}, OnnxUse::Inference)),
      ElementsAre(1, 2));
}

TEST(OnnxImportTest, ValuesAreWrittenBackAndTheRestStays) {
  const TempDir dir;
  const std::string file = write_onnx(dir, training_model());
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(onnx_with_values(file, {{"mean", floats({1}, {7})}})));
  EXPECT_EQ(onnx::read_tensor(model.graph().initializer(2), dir.path()).data<float>()[0], 7);
  EXPECT_EQ(onnx::read_tensor(model.graph().initializer(3), dir.path()).data<float>()[0], 4);
  EXPECT_EQ(model.graph().node_size(), 2);
  EXPECT_THAT(message_of([&] {
                onnx_with_values(file, {{"w", floats({1}, {7})}});
              }),
              HasSubstr("it has no initializer 'w'"));
  EXPECT_THAT(message_of([&] {
                onnx_with_values(file, {{"mean", floats({2}, {7, 8})}});
              }),
              HasSubstr("'mean' is float32 [1], the value float32 [2]"));
}

TEST(OnnxImportTest, FunctionsOfTheModelBecomeTheirNodes) {
  const std::string text =
      "ir_version: 8 opset_import { domain: \"\" version: 13 } opset_import { domain: \"f\" version: 1 }"
      "functions { name: \"Leak\" domain: \"f\" input: \"v\" output: \"w\" attribute: \"slope\""
      "  opset_import { domain: \"\" version: 13 }"
      "  node { op_type: \"LeakyRelu\" input: \"v\" output: \"w\""
      "         attribute { name: \"alpha\" ref_attr_name: \"slope\" type: FLOAT } } }"
      "graph { node { op_type: \"Leak\" domain: \"f\" input: \"x\" output: \"y\""
      "               attribute { name: \"slope\" f: 0.5 type: FLOAT } } " +
      onnx_input("x", kOnnxFloat, {2}) + kY + "}";
  EXPECT_THAT(float_values(run_onnx(text, {{"x", floats({2}, {-4, 4})}})), ElementsAre(-2, 4));
}

}  // namespace
}  // namespace braid::testing
