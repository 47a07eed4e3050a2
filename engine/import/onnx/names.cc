#include "engine/import/onnx/names.h"

#include <functional>

namespace braid::onnx {
namespace {

void for_each_value(const ModelProto& model, const std::function<void(const std::string&)>& visit) {
  for (const ValueInfoProto& input : model.graph().input()) visit(input.name());
  for (const TensorProto& tensor : model.graph().initializer()) visit(tensor.name());
  for (const SparseTensorProto& tensor : model.graph().sparse_initializer()) visit(tensor.values().name());
  for (const NodeProto& node : model.graph().node())
    for (const std::string& output : node.output()) visit(output);
}

}  // namespace

std::string clean_name(std::string name) {
  if (name.ends_with(":0")) name.resize(name.size() - 2);
  for (char& c : name)
    if (c == ':' || c == '^' || c == '=' || static_cast<unsigned char>(c) <= ' ') c = '_';
  return name;
}

NodeNames::NodeNames(const ModelProto& model) {
  for_each_value(model, [this](const std::string& value) {
    if (clean_name(value) == value) add(value);
  });
  for_each_value(model, [this](const std::string& value) { add(value); });
}

void NodeNames::add(const std::string& value) {
  if (by_value_.contains(value)) return;
  const std::string base = clean_name(value);
  std::string name = base;
  for (int number = 1; taken_.contains(name); ++number) name = base + "_" + std::to_string(number);
  taken_.insert(name);
  by_value_.emplace(value, std::move(name));
}

std::string NodeNames::of(const std::string& value) const {
  const auto at = by_value_.find(value);
  return at == by_value_.end() ? clean_name(value) : at->second;
}

}  // namespace braid::onnx
