#include "engine/import/onnx/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace braid::onnx {
namespace {

constexpr const char* kKind = "pkg.torch.export.graph_signature.InputSpec.kind";

/// Inputs, by place, that are settings of an operator.
const std::map<std::string, std::vector<int>> kSettings{
    {"BatchNormalization", {3, 4}},
    {"Clip", {1, 2}},
    {"DequantizeLinear", {1}},
    {"Dropout", {1}},
    {"NegativeLogLikelihoodLoss", {2}},
    {"OneHot", {2}},
    {"Pad", {2}},
    {"QuantizeLinear", {1}},
    {"Resize", {1, 2}},
    {"SoftmaxCrossEntropyLoss", {2}},
    {"Upsample", {1}},
};

/// Value -> what PyTorch's exporter says that it is.
std::map<std::string, std::string> kinds_of(const ModelProto& model) {
  std::map<std::string, std::string> kinds;
  for (const auto* values : {&model.graph().value_info(), &model.graph().input()})
    for (const ValueInfoProto& value : *values)
      for (const StringStringEntryProto& entry : value.metadata_props())
        if (entry.key() == kKind) kinds[value.name()] = entry.value();
  return kinds;
}

std::set<std::string> settings_of(const ModelProto& model) {
  std::set<std::string> settings;
  for (const NodeProto& node : model.graph().node()) {
    const auto places = kSettings.find(node.op_type());
    if (places == kSettings.end()) continue;
    for (const int place : places->second)
      if (place < node.input_size()) settings.insert(node.input(place));
  }
  return settings;
}

}  // namespace

std::set<std::string> parameters_of(const ModelProto& model) {
  const std::map<std::string, std::string> kinds = kinds_of(model);
  const std::set<std::string> settings = settings_of(model);
  const bool of_pytorch = model.producer_name() == "pytorch";
  const bool has_kinds =
      std::any_of(kinds.begin(), kinds.end(), [](const auto& each) { return each.second == "PARAMETER"; });
  std::set<std::string> names;
  for (const TensorProto& initializer : model.graph().initializer()) {
    const std::string& name = initializer.name();
    if (settings.contains(name)) continue;
    const auto kind = kinds.find(name);
    if (has_kinds ? kind == kinds.end() || kind->second != "PARAMETER"
                  : initializer.dims().empty() && !of_pytorch)
      continue;
    names.insert(name);
  }
  return names;
}

std::vector<std::string> remarks_on_training(const ModelProto& model) {
  int count = 0;
  std::string first;
  for (const NodeProto& node : model.graph().node()) {
    if (node.op_type() != "BatchNormalization") continue;
    const bool trains =
        std::any_of(node.attribute().begin(), node.attribute().end(), [](const AttributeProto& attribute) {
          return attribute.name() == "training_mode" && attribute.i() != 0;
        });
    if (trains) continue;
    if (count++ == 0) first = node.name().empty() ? node.output(0) : node.name();
  }
  if (count == 0) return {};
  return {fmt::format(
      "{} BatchNormalization, first '{}', {} exported for inference: {} use the statistics that the file "
      "has, "
      "and training does not change them. PyTorch exports them for training with "
      "torch.onnx.export(..., training=TrainingMode.TRAINING, dynamo=False)",
      count, first, count == 1 ? "node was" : "nodes were", count == 1 ? "it will" : "they will")};
}

}  // namespace braid::onnx
