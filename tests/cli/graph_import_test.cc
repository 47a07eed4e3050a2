// ONNX's own cases (an outside oracle: a folder a case, model.onnx and test_data_set_0 with input_N.pb and
// output_N.pb) through `braid graph import` and `braid graph run`, against their stored outputs.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>

#include "base/files.h"
#include "base/formats/npy.h"
#include "proto/onnx.pb.h"
#include "tests/integration/run.h"
#include "tests/support/outside_data.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Path kCases = outside_data("onnx_cases");
constexpr double kRelative = 1e-4, kAbsolute = 1e-5;  // of float32; float16 rounds to 2^-11

std::vector<Path> cases() {
  std::vector<Path> found;
  for (const auto& entry : std::filesystem::directory_iterator(kCases))
    if (std::filesystem::exists(entry.path() / "model.onnx")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// As .npy would hold it. The cases store all elements in raw_data.
NpyArray read_case_tensor(const Path& file) {
  onnx::TensorProto proto;
  EXPECT_TRUE(proto.ParseFromString(read_file(file))) << file;
  static const std::map<int, DType> types{
      {onnx::TensorProto::FLOAT, DType::Float32},   {onnx::TensorProto::DOUBLE, DType::Float64},
      {onnx::TensorProto::FLOAT16, DType::Float16}, {onnx::TensorProto::INT32, DType::Int32},
      {onnx::TensorProto::INT64, DType::Int64},     {onnx::TensorProto::BOOL, DType::Bool},
      {onnx::TensorProto::UINT8, DType::UInt8},     {onnx::TensorProto::INT8, DType::Int8}};
  NpyArray array;
  array.dtype = types.at(proto.data_type());
  array.shape.assign(proto.dims().begin(), proto.dims().end());
  const std::string& raw = proto.raw_data();
  const auto bytes = std::as_bytes(std::span(raw));
  array.data.assign(bytes.begin(), bytes.end());
  return array;
}

template <class T>
void expect_near(const NpyArray& got, const NpyArray& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.data.size() / sizeof(T); ++i) {
    T a, b;
    std::memcpy(&a, got.data.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, expected.data.data() + i * sizeof(T), sizeof(T));
    if (std::isnan(a) && std::isnan(b)) continue;
    ASSERT_NEAR(a, b, kAbsolute + kRelative * std::abs(b)) << what << ", element " << i;
  }
}

void expect_equal(const NpyArray& got, const NpyArray& expected, const std::string& what) {
  ASSERT_EQ(got.shape, expected.shape) << what;
  ASSERT_EQ(got.dtype, expected.dtype) << what;
  ASSERT_EQ(got.data.size(), expected.data.size()) << what;
  if (expected.dtype == DType::Float32) return expect_near<float>(got, expected, what);
  if (expected.dtype == DType::Float64) return expect_near<double>(got, expected, what);
  EXPECT_EQ(got.data, expected.data) << what;
}

class OnnxTest : public IntegrationTest {
 protected:
  void run_case(const Path& folder) {
    const std::string name = folder.filename();
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(read_file(folder / "model.onnx")));
    // This case's outputs were computed with an epsilon that its model does not state.
    if (name == "test_adam_multiple") {
      onnx::AttributeProto& epsilon = *model.mutable_graph()->mutable_node(0)->add_attribute();
      epsilon.set_name("epsilon");
      epsilon.set_f(0.01F);
    }
    std::ofstream(path("model.onnx"), std::ios::binary) << model.SerializeAsString();
    const auto import =
        run("import", {"graph", "import", "--onnx", path("model.onnx"), "--out", path("graph.pb")});
    ASSERT_EQ(import->wait({}), 0) << name << ": " << import->err();

    std::vector<std::string> arguments{"graph", "run", path("graph.pb")};
    const Path data = folder / "test_data_set_0";
    for (int i = 0; i < model.graph().input_size(); ++i) {
      const NpyArray array = read_case_tensor(data / ("input_" + std::to_string(i) + ".pb"));
      const std::string file = path("input_" + std::to_string(i) + ".npy");
      std::ofstream(file, std::ios::binary) << format_npy(array.dtype, array.shape, array.data);
      arguments.insert(arguments.end(), {"--feed", model.graph().input(i).name() + "=" + file});
    }
    for (int i = 0; i < model.graph().output_size(); ++i)
      arguments.insert(arguments.end(), {"--fetch", model.graph().output(i).name(), "--out",
                                         path("output_" + std::to_string(i) + ".npy")});
    const auto execution = run("run", arguments);
    ASSERT_EQ(execution->wait({}), 0) << name << ": " << execution->err();
    for (int i = 0; i < model.graph().output_size(); ++i) {
      const std::string bytes = read_file(path("output_" + std::to_string(i) + ".npy"));
      const NpyArray got = parse_npy(std::as_bytes(std::span(bytes)), name);
      expect_equal(got, read_case_tensor(data / ("output_" + std::to_string(i) + ".pb")),
                   name + ", output '" + model.graph().output(i).name() + "'");
    }
  }

  std::string write_model(const std::string& op) const {
    onnx::ModelProto model;
    model.add_opset_import()->set_version(13);
    onnx::GraphProto& graph = *model.mutable_graph();
    onnx::ValueInfoProto& x = *graph.add_input();
    x.set_name("x");
    x.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    x.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(3);
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(op);
    node.add_input("x");
    node.add_output("y");
    graph.add_output()->set_name("y");
    std::ofstream(path("small.onnx"), std::ios::binary) << model.SerializeAsString();
    return path("small.onnx");
  }
};

TEST_F(OnnxTest, AllStoredCasesGiveTheirOutputs) {
  SKIP_WITHOUT_OUTSIDE_DATA(kCases);
  const std::vector<Path> all = cases();
  ASSERT_FALSE(all.empty()) << kCases << " has no cases";
  for (const Path& folder : all) run_case(folder);
}

TEST_F(OnnxTest, GraphCommandsTakeModelsAsTheyAre) {
  const std::string model = write_model("Relu");
  const float values[] = {-1, 0, 2};
  const std::vector<std::int64_t> shape{3};
  std::ofstream(path("x.npy"), std::ios::binary)
      << format_npy(DType::Float32, shape, std::as_bytes(std::span(values)));
  const auto execution = run("run", {"graph", "run", model, "--feed", "x=" + path("x.npy"), "--fetch", "y"});
  EXPECT_EQ(execution->wait({}), 0) << execution->err();
  EXPECT_THAT(execution->out(), HasSubstr("y: float32 [3] [0 0 2]"));
  const auto check = run("check", {"graph", "check", model});
  EXPECT_EQ(check->wait({}), 0) << check->err();
  const auto infer =
      run("infer", {"infer", "--graph", model, "--input", "x=" + path("x.npy"), "--output", "y", "--batch",
                    "3", "--iters", "1", "--device", "cpu", "--out", path("answers")});
  EXPECT_EQ(infer->wait({}), 0) << infer->err();
  EXPECT_TRUE(std::filesystem::exists(path("answers") + "/y.npy"));
}

TEST_F(OnnxTest, WhatCannotBeTranslatedIsNamedAndEndsWithTwo) {
  const std::string model = write_model("NoSuchOp");
  const auto import = run("import", {"graph", "import", "--onnx", model, "--out", path("graph.pb")});
  EXPECT_EQ(import->wait({}), 2);
  EXPECT_THAT(import->err(), AllOf(HasSubstr("1 of 1 nodes cannot be translated"),
                                   HasSubstr("[NoSuchOp] node 'y': the op is not supported")));
  EXPECT_FALSE(std::filesystem::exists(path("graph.pb")));
  const auto check = run("check", {"graph", "check", model});
  EXPECT_EQ(check->wait({}), 2);
  EXPECT_THAT(check->out(), HasSubstr("[NoSuchOp] node 'y': the op is not supported"));
}

}  // namespace
}  // namespace braid::integration
