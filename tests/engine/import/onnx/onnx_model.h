// ONNX models for tests: written as protobuf text, imported through a file and run once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/import/onnx/onnx.h"
#include "engine/ir/tensor.h"
#include "tests/support/temp_dir.h"

namespace braid::testing {

/// The text of a model: its operator set and the inside of `graph { }`.
std::string onnx_model(int opset, const std::string& graph);
/// "input { name: ... }" of a tensor; the numbers are ONNX's types, -1 a dimension that is not known.
std::string onnx_input(const std::string& name, int type, const std::vector<int>& dims);

/// The output that run_onnx gives.
inline const std::string kY = "output { name: \"y\" } ";
/// "attribute { ... }" of a node; `values` are separated by commas.
std::string ints(const std::string& name, const std::string& values);
std::string number(const std::string& name, int value);
std::string text(const std::string& name, const std::string& value);

inline constexpr int kOnnxFloat = 1, kOnnxInt32 = 6, kOnnxInt64 = 7, kOnnxUInt64 = 13;

/// The file that `text` makes.
std::string write_onnx(const TempDir& dir, const std::string& text);

using Feeds = std::map<std::string, Tensor>;
/// Imports the model, runs it and gives output "y".
Tensor run_onnx(const std::string& text, const Feeds& feeds, OnnxUse use = OnnxUse::AsWritten);

/// The gradient of output "y", a number, by input "x", a float, as of a variable of this value.
float gradient_by_x(const std::string& text, float x, const Feeds& feeds = {});

Tensor floats(Shape shape, const std::vector<float>& values);
Tensor int64s(Shape shape, const std::vector<std::int64_t>& values);
std::vector<float> float_values(const Tensor& tensor);

}  // namespace braid::testing
