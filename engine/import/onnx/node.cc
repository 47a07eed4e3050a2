#include "engine/import/onnx/node.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "engine/import/onnx/tensors.h"

namespace braid::onnx {

Val OnnxNode::in(int i) const {
  if (!has(i)) throw InvalidArgument(fmt::format("input {} is missing", i));
  return inputs_[static_cast<std::size_t>(i)];
}

const Sequence& OnnxNode::sequence(int i) const {
  const Sequence* found = i < proto_.input_size() ? around.find_sequence(proto_.input(i)) : nullptr;
  if (!found) throw InvalidArgument(fmt::format("input {} is not a sequence whose length is known", i));
  return *found;
}

void OnnxNode::out(int i, Val value) {
  if (wants(i)) outputs_[static_cast<std::size_t>(i)] = value;
}

void OnnxNode::out_sequence(Sequence sequence, int i) {
  if (wants(i)) sequences_[static_cast<std::size_t>(i)] = std::move(sequence);
}

BodyValue OnnxNode::in_any(int i) const {
  if (i < proto_.input_size())
    if (const Sequence* found = around.find_sequence(proto_.input(i))) return {{}, *found};
  return {in(i), std::nullopt};
}

void OnnxNode::out_any(int i, const BodyValue& value) {
  if (value.sequence) return out_sequence(*value.sequence, i);
  out(i, tf("Identity", {value.tensor}));
}

BodyValue OnnxNode::result(int i) const {
  const auto at = static_cast<std::size_t>(i);
  return {outputs_[at], sequences_[at]};
}

const AttributeProto* OnnxNode::find(std::string_view name) const {
  for (const AttributeProto& attribute : proto_.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

std::int64_t OnnxNode::i(std::string_view name, std::int64_t fallback) const {
  const AttributeProto* attribute = find(name);
  return attribute ? attribute->i() : fallback;
}

int OnnxNode::i32(std::string_view name, int fallback) const {
  const std::int64_t value = i(name, fallback);
  if (value != static_cast<int>(value)) throw InvalidArgument(fmt::format("attribute {} is {}", name, value));
  return static_cast<int>(value);
}

std::int64_t OnnxNode::positive(std::string_view name, std::int64_t fallback) const {
  const std::int64_t value = i(name, fallback);
  if (value < 1 || value > std::numeric_limits<std::int32_t>::max())
    throw InvalidArgument(fmt::format("attribute {} is {}", name, value));
  return value;
}

double OnnxNode::f(std::string_view name, double fallback) const {
  const AttributeProto* attribute = find(name);
  return attribute ? static_cast<double>(attribute->f()) : fallback;
}

std::string OnnxNode::s(std::string_view name, std::string fallback) const {
  const AttributeProto* attribute = find(name);
  return attribute ? attribute->s() : fallback;
}

Ints OnnxNode::is(std::string_view name, Ints fallback) const {
  const AttributeProto* attribute = find(name);
  return attribute ? Ints(attribute->ints().begin(), attribute->ints().end()) : fallback;
}

std::vector<double> OnnxNode::fs(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (!attribute) return {};
  return {attribute->floats().begin(), attribute->floats().end()};
}

std::vector<std::string> OnnxNode::ss(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (!attribute) return {};
  return {attribute->strings().begin(), attribute->strings().end()};
}

Tensor OnnxNode::tensor(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (!attribute) throw InvalidArgument(fmt::format("attribute {} is missing", name));
  return read_tensor(attribute->t(), around.folder());
}

const GraphProto& OnnxNode::body(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (!attribute || !attribute->has_g()) throw InvalidArgument(fmt::format("attribute {} is missing", name));
  return attribute->g();
}

const Translations& Translations::all() {
  static const Translations table = [] {
    Translations t;
    add_elementwise(t);
    add_reductions(t);
    add_shapes(t);
    add_indexing(t);
    add_matrices(t);
    add_norms(t);
    add_convolutions(t);
    add_pooling(t);
    add_losses(t);
    add_quantized(t);
    add_recurrent(t);
    add_resize(t);
    add_bodies(t);
    add_sampling(t);
    add_signals(t);
    add_random(t);
    add_sequences(t);
    add_columns(t);
    add_detection(t);
    add_attention(t);
    return t;
  }();
  return table;
}

Translate Translations::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::vector<std::string> Translations::names() const {
  std::vector<std::string> names;
  for (const auto& [name, translate] : by_name_) names.push_back(name);
  return names;
}

}  // namespace braid::onnx
