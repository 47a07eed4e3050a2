#include "tests/engine/import/onnx/onnx_model.h"

#include <gtest/gtest.h>

#include <google/protobuf/text_format.h>

#include <fstream>

#include "engine/autodiff/gradients.h"
#include "engine/graph/specialize.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "proto/onnx.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {

std::string onnx_model(int opset, const std::string& graph) {
  return "ir_version: 8 opset_import { domain: \"\" version: " + std::to_string(opset) + " } graph { " +
         graph + " }";
}

std::string onnx_input(const std::string& name, int type, const std::vector<int>& dims) {
  std::string text =
      "input { name: \"" + name + "\" type { tensor_type { elem_type: " + std::to_string(type) + " shape { ";
  for (const int dim : dims)
    text += dim < 0 ? "dim { dim_param: \"n\" } " : "dim { dim_value: " + std::to_string(dim) + " } ";
  return text + "} } } } ";
}

std::string ints(const std::string& name, const std::string& values) {
  return "attribute { name: \"" + name + "\" ints: [" + values + "] type: INTS } ";
}
std::string number(const std::string& name, int value) {
  return "attribute { name: \"" + name + "\" i: " + std::to_string(value) + " type: INT } ";
}
std::string text(const std::string& name, const std::string& value) {
  return "attribute { name: \"" + name + "\" s: \"" + value + "\" type: STRING } ";
}

std::string write_onnx(const TempDir& dir, const std::string& text) {
  onnx::ModelProto model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  const std::string file = (dir.path() / "model.onnx").string();
  std::ofstream(file, std::ios::binary) << model.SerializeAsString();
  return file;
}

Tensor run_onnx(const std::string& text, const Feeds& feeds, OnnxUse use) {
  const TempDir dir;
  const OnnxImport model = import_onnx(write_onnx(dir, text), {}, OwnNodes::Made, use);
  const Graph graph = specialize(import_graph(model.graph), feeds, {"y"}, {});
  return Interpreter(graph).run(feeds, {"y"}).at(0);
}

float gradient_by_x(const std::string& text, float x, const Feeds& feeds) {
  const TempDir dir;
  OnnxImport model = import_onnx(write_onnx(dir, text));
  for (NodeDef& node : *model.graph.mutable_node())
    if (node.name() == "x") {
      node.set_op("ReadVariableOp");
      node.clear_attr();
      (*node.mutable_attr())["dtype"].set_type(DT_FLOAT);
      node.add_input("w");
    }
  NodeDef& variable = *model.graph.add_node();
  variable.set_name("w");
  variable.set_op("VarHandleOp");
  (*variable.mutable_attr())["dtype"].set_type(DT_FLOAT);
  (*variable.mutable_attr())["shape"].mutable_shape();
  Graph graph = import_graph(model.graph);
  const auto gradients = add_gradients(graph, graph.parse_value("y"));
  Interpreter interpreter(graph);
  interpreter.variables().emplace("w", Tensor::scalar(x));
  return interpreter.run(feeds, {graph.value_name(gradients.at(0).dense)}).at(0).data<float>()[0];
}

Tensor floats(Shape shape, const std::vector<float>& values) {
  return Tensor::from<float>(std::move(shape), values);
}

Tensor int64s(Shape shape, const std::vector<std::int64_t>& values) {
  return Tensor::from<std::int64_t>(std::move(shape), values);
}

std::vector<float> float_values(const Tensor& tensor) {
  const auto values = tensor.data<float>();
  return {values.begin(), values.end()};
}

}  // namespace braid::testing
