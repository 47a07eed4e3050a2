// Trained values from and into files of other programs, from Python: TensorFlow's checkpoints
// (base/formats/tensor_bundle.h) and ONNX models.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <map>

#include "base/files.h"
#include "base/formats/tensor_bundle.h"
#include "engine/import/onnx/write_values.h"
#include "python/src/arrays.h"
#include "python/src/bind.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

nb::dict read_bundle(const std::string& prefix) {
  const TensorBundleReader reader(prefix);
  nb::dict values;
  for (const auto& [name, entry] : reader.entries()) {
    if (entry.dtype == DType::String || dtype_size(entry.dtype) == 0) continue;
    const std::vector<std::byte> bytes = reader.read(name);
    Tensor tensor(entry.dtype, Shape(entry.shape));
    std::memcpy(tensor.raw(), bytes.data(), tensor.bytes());
    values[name.c_str()] = to_array(tensor);
  }
  return values;
}

void write_bundle(const std::string& prefix, const nb::dict& values) {
  TensorBundleWriter writer(prefix);
  for (const auto& [name, value] : values) {
    const auto key = nb::cast<std::string>(name);
    const Tensor tensor = to_tensor(value, "variable '" + key + "'");
    writer.add(key, tensor.dtype(), tensor.shape().dims(), tensor.as_bytes());
  }
  writer.finish();
}

void write_onnx(const std::string& model, const std::string& to, const nb::dict& values) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, value] : values) {
    const auto key = nb::cast<std::string>(name);
    tensors.emplace(key, to_tensor(value, "variable '" + key + "'"));
  }
  write_file_atomically(to, onnx_with_values(model, tensors));
}

}  // namespace

void bind_bundles(nb::module_& module) {
  module.def("read_bundle", read_bundle, nb::arg("prefix"), "Numbers of a TensorFlow checkpoint, by name.");
  module.def("write_bundle", write_bundle, nb::arg("prefix"), nb::arg("values"));
  module.def("write_onnx", write_onnx, nb::arg("model"), nb::arg("to"), nb::arg("values"),
             "An ONNX model with other values of its initializers, as another file.");
}

}  // namespace braid::python
