// Models that no exporter writes: what does not fit together is a problem of its node, never a crash, an
// endless translation or an error without a place. tests/fuzz makes such models by the thousand; these are
// the ones that once did harm.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/engine/import/onnx/onnx_model.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

struct Hostile {
  std::string op;
  std::vector<std::vector<int>>
      inputs;  // dimensions of float inputs x0, x1, ...; {-2}: the input is left out
  std::string attributes;
  std::string reason;
  int outputs = 1;
};

std::string model_of(const Hostile& hostile) {
  std::string node = "node { name: \"bad\" op_type: \"" + hostile.op + "\" ", inputs;
  for (std::size_t i = 0; i < hostile.inputs.size(); ++i) {
    const bool is_absent = hostile.inputs[i] == std::vector<int>{-2};
    const std::string name = is_absent ? "" : "x" + std::to_string(i);
    node += "input: \"" + name + "\" ";
    if (!is_absent) inputs += onnx_input(name, kOnnxFloat, hostile.inputs[i]);
  }
  for (int i = 0; i < hostile.outputs; ++i) node += "output: \"y" + std::to_string(i) + "\" ";
  return onnx_model(18, node + hostile.attributes + "} " + inputs);
}

const std::string kIdentityBody =
    "attribute { name: \"body\" type: GRAPH g { node { op_type: \"Identity\" input: \"i\" output: \"o\" } "
    "input { name: \"i\" } output { name: \"o\" } } } ";

TEST(OnnxHostileTest, WhatDoesNotFitIsAProblemOfItsNode) {
  const std::vector<int> image{1, 2, 4, 4};
  const std::vector<Hostile> all{
      {"Col2Im", {{1, 4, 4}, {2}, {2}}, ints("pads", "1"), "do not fit the image"},
      {"Col2Im", {{1, 4, 4}, {2}, {2}}, ints("strides", "0, 1"), "is not positive"},
      {"Concat", {}, number("axis", 0), "nothing to join"},
      {"Conv", {image, {2, 2, 3, 3}}, number("group", 0), "no 0 groups"},
      {"Conv", {image, {2, 2, 3, 3}}, ints("strides", "1, 0"), "stride or dilation is 0"},
      {"ConvTranspose", {image, {2, 2, 3, 3}}, number("group", 0), "no 0 groups"},
      {"ConvTranspose", {image, {2, 2, 3, 3}}, ints("output_padding", "1"), "output_padding"},
      {"ConvTranspose", {image, {2, 2, 3, 3}}, ints("output_shape", "1"), "output_shape"},
      {"ConvTranspose", {image, {2, 2, 3, 3}}, ints("pads", ""), "do not fit the kernel"},
      {"DequantizeLinear", {{3}, {2}}, "", "of a list of 1"},
      {"QuantizeLinear", {{3}, {2}}, "", "of a list of 1"},
      {"QuantizeLinear", {image, image}, "", "block_size must be positive"},
      {"GridSample", {{2, 2}, {2, 2, 2, 2}}, "", "left out or empty"},
      {"LRN", {{4}}, number("size", 3), "of a list of 1"},
      {"LRN", {image}, number("size", -3), "attribute size is -3"},
      {"LRN", {image}, number("size", 2000000000), "too many"},
      {"LpPool", {image}, "", "the window has no axes"},
      {"LpPool", {image}, ints("kernel_shape", "0, 0"), "size, stride or dilation is 0"},
      {"LpPool", {image}, ints("kernel_shape", "2000000, 2"), "too many"},
      {"MaxPool", {image}, ints("kernel_shape", "-1, 2"), "is -1"},
      {"MaxPool", {image}, ints("kernel_shape", "2, 2") + ints("pads", "1"), "do not fit the kernel"},
      {"MaxPool", {{4}}, ints("kernel_shape", "2, 2"), "does not fit an input of shape [4]"},
      {"ReverseSequence", {image, {1}}, number("batch_axis", 5), "one must be 0, the other 1"},
      {"SoftmaxCrossEntropyLoss", {{3}, {3}}, "", "axis 1 is not one of 1 axes"},
      {"SoftmaxCrossEntropyLoss", {{2, 3}, {2, 3}}, "", "its labels are floats"},
      {"SoftmaxCrossEntropyLoss", {image, {-2}}, "", "input 1 is missing"},
      {"BatchNormalization", {{}, {2}, {2}, {2}, {2}}, number("training_mode", 1), "has no channels"},
      {"Einsum", {{2}}, text("equation", "abcdef...->a"), "another rank"},
      {"Split", {{2}}, "", "no outputs", 0},
      {"Loop", {{-2}, {-2}, {2}, {2}}, kIdentityBody, "1 outputs and 2 states"},
      {"Scan", {{2}}, number("num_scan_inputs", -1) + kIdentityBody, "num_scan_inputs is -1"},
      {"Scan", {{2}}, number("num_scan_inputs", 3) + kIdentityBody, "3 of 1 inputs"},
      {"Scan", {{2}}, number("num_scan_inputs", 1) + kIdentityBody, "its body gives 1 values", 3},
      {"SpaceToDepth", {image}, number("blocksize", 0), "blocksize is 0"},
      {"Flatten", {image}, number("axis", 9), "axis 9"},
      {"GatherND", {image, {1, 9}}, "", "9 indices for 4 axes"},
  };
  for (const Hostile& hostile : all) {
    const TempDir dir;
    const OnnxImport model = try_import_onnx(write_onnx(dir, model_of(hostile)));
    ASSERT_EQ(model.problems.size(), 1U) << hostile.op << " " << hostile.attributes;
    EXPECT_EQ(model.problems[0].node, "bad");
    EXPECT_EQ(model.problems[0].op, hostile.op);
    EXPECT_THAT(model.problems[0].reason, HasSubstr(hostile.reason))
        << hostile.op << " " << hostile.attributes;
  }
}

TEST(OnnxHostileTest, FunctionsThatCallThemselvesEnd) {
  const std::string call =
      "node { name: \"again\" op_type: \"F\" domain: \"own\" input: \"a\" output: \"b\" } ";
  const std::string function = "functions { name: \"F\" domain: \"own\" input: \"a\" output: \"b\" " + call +
                               call + "opset_import { domain: \"own\" version: 1 } } ";
  const std::string model =
      onnx_model(18, onnx_input("a", kOnnxFloat, {2}) + call + "output { name: \"b\" } ") +
      " opset_import { domain: \"own\" version: 1 } " + function;
  const TempDir dir;
  const OnnxImport result = try_import_onnx(write_onnx(dir, model));
  ASSERT_FALSE(result.problems.empty());
  EXPECT_THAT(result.problems[0].reason, HasSubstr("nested too deep"));
}

TEST(OnnxHostileTest, SizesThatNoMachineHoldsTakeNoMemory) {
  const std::string weights =
      "initializer { name: \"w\" data_type: 1 dims: [1000000000, 1000] float_data: [1, 2] } "
      "node { name: \"n\" op_type: \"Neg\" input: \"w\" output: \"y\" } " +
      kY;
  const TempDir dir;
  const OnnxImport result = try_import_onnx(write_onnx(dir, onnx_model(18, weights)));
  ASSERT_EQ(result.problems.size(), 1U);
  EXPECT_EQ(result.problems[0].node, "w");
  EXPECT_THAT(result.problems[0].reason, HasSubstr("shape [1000000000, 1000] with 2 values"));
}

}  // namespace
}  // namespace braid::testing
