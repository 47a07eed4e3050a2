#include "engine/import/onnx/write_values.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "engine/import/onnx/names.h"
#include "engine/import/onnx/tensors.h"

namespace braid {
namespace {

/// Only what holds elements: the name and what else is written beside stay.
void set_elements(onnx::TensorProto& proto, const Tensor& value) {
  proto.clear_float_data();
  proto.clear_int32_data();
  proto.clear_string_data();
  proto.clear_int64_data();
  proto.clear_double_data();
  proto.clear_uint64_data();
  proto.clear_external_data();
  proto.clear_data_location();
  const auto bytes = value.as_bytes();
  proto.set_raw_data(bytes.data(), bytes.size());
}

class Writer {
 public:
  Writer(const std::filesystem::path& file, const std::map<std::string, Tensor>& values)
      : file_(file),
        values_(values),
        model_(onnx::parse_model(read_file(file), file.string())),
        names_(model_) {}

  std::string write() {
    for (auto& initializer : *model_.mutable_graph()->mutable_initializer())
      put(initializer.name(), initializer);
    for (auto& node : *model_.mutable_graph()->mutable_node())
      for (auto& attribute : *node.mutable_attribute())
        if (node.op_type() == "Constant" && node.output_size() == 1 && attribute.name() == "value")
          put(node.output(0), *attribute.mutable_t());
    for (const auto& [name, value] : values_)
      if (!written_.contains(name))
        throw InvalidArgument(fmt::format("{}: it has no initializer '{}'", file_.string(), name));
    if (model_.ByteSizeLong() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
      throw InvalidArgument(
          fmt::format("{}: with its data it is larger than an ONNX file can be (2 GiB): write the "
                      "values as .npz",
                      file_.string()));
    return model_.SerializeAsString();
  }

 private:
  void put(const std::string& value, onnx::TensorProto& proto) {
    const std::string name = names_.of(value);
    const auto found = values_.find(name);
    if (found == values_.end()) {
      if (proto.data_location() == onnx::TensorProto::EXTERNAL)
        set_elements(proto, onnx::read_tensor(proto, file_.parent_path()));
      return;
    }
    const Shape shape(std::vector<std::int64_t>(proto.dims().begin(), proto.dims().end()));
    const DType dtype = onnx::dtype_of_onnx(proto.data_type());
    if (dtype != found->second.dtype() || shape != found->second.shape())
      throw InvalidArgument(fmt::format(
          "{}: '{}' is {} {}, the value {} {}", file_.string(), name, dtype_name(dtype), shape.to_string(),
          dtype_name(found->second.dtype()), found->second.shape().to_string()));
    set_elements(proto, found->second);
    written_.insert(name);
  }

  const std::filesystem::path& file_;
  const std::map<std::string, Tensor>& values_;
  onnx::ModelProto model_;
  const onnx::NodeNames names_;
  std::set<std::string> written_;
};

}  // namespace

std::string onnx_with_values(const std::filesystem::path& file, const std::map<std::string, Tensor>& values) {
  return Writer(file, values).write();
}

}  // namespace braid
