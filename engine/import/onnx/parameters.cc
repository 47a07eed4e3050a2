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

/// What PyTorch's exporter says that the node was, or "":
/// "%abs_1 : [...] = call_function[target=torch.ops.aten.abs.default](args = (%detach,), kwargs = {})".
std::string_view call_of(const NodeProto& node) {
  for (const StringStringEntryProto& entry : node.metadata_props())
    if (entry.key() == "pkg.torch.onnx.fx_node") return entry.value();
  return {};
}

/// The values named detach, detach_1, ... that a call takes.
std::vector<std::string> detached_arguments(std::string_view call) {
  constexpr std::string_view kMark = "%detach";
  std::vector<std::string> names;
  for (std::size_t at = call.find("](args = "); (at = call.find(kMark, at)) != std::string_view::npos;) {
    const std::string_view name = call.substr(at + 1, call.find_first_of(",)]", at) - at - 1);
    at += kMark.size();
    const std::string_view number = name.substr(kMark.size() - 1);
    if (number.empty() || (number.starts_with('_') && number.size() > 1 &&
                           number.find_first_not_of("0123456789", 1) == std::string_view::npos))
      names.emplace_back(name);
  }
  return names;
}

/// The first node that reads a detached value which no node gives; null if there is none.
const NodeProto* reads_lost_detach(const ModelProto& model) {
  std::set<std::string> given;
  for (const NodeProto& node : model.graph().node())
    for (const std::string& output : node.output()) given.insert(output);
  for (const NodeProto& node : model.graph().node())
    for (const std::string& name : detached_arguments(call_of(node)))
      if (!given.contains(name)) return &node;
  return nullptr;
}

std::string name_of(const NodeProto& node) {
  return node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
}

}  // namespace

bool is_detach(const NodeProto& node) {
  return call_of(node).find("[target=torch.ops.aten.detach.") != std::string_view::npos;
}

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
  std::vector<std::string> remarks;
  int count = 0;
  std::string first;
  for (const NodeProto& node : model.graph().node()) {
    if (node.op_type() != "BatchNormalization") continue;
    const bool trains =
        std::any_of(node.attribute().begin(), node.attribute().end(), [](const AttributeProto& attribute) {
          return attribute.name() == "training_mode" && attribute.i() != 0;
        });
    if (trains) continue;
    if (count++ == 0) first = name_of(node);
  }
  if (count > 0)
    remarks.push_back(fmt::format(
        "{} BatchNormalization, first '{}', {} exported for inference: {} use the statistics that the file "
        "has, "
        "and training does not change them. PyTorch exports them for training with "
        "torch.onnx.export(..., training=TrainingMode.TRAINING, dynamo=False)",
        count, first, count == 1 ? "node was" : "nodes were", count == 1 ? "it will" : "they will"));
  if (const NodeProto* node = reads_lost_detach(model))
    remarks.push_back(fmt::format(
        "node '{}' reads a value that the program detached, but the exporter has removed the mark: gradients "
        "pass there, as they do not in PyTorch. torch.onnx.export(..., optimize=False) keeps it",
        name_of(*node)));
  return remarks;
}

}  // namespace braid::onnx
