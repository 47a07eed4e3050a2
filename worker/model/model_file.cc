#include "worker/model/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/import/import.h"
#include "engine/import/inline_functions.h"
#include "engine/import/nearest_name.h"
#include "engine/import/onnx/any_graph.h"
#include "worker/model/def_graph.h"
#include "worker/model/onnx_file.h"

namespace braid::worker {
namespace {

bool has_node(const GraphDef& graph, const std::string& name) {
  return std::any_of(graph.node().begin(), graph.node().end(),
                     [&](const NodeDef& node) { return node.name() == name; });
}

constexpr std::string_view kDefaultSignature = "serving_default";  // TensorFlow's

std::string key_text(const std::string& signature, const std::string& key) { return signature + "/" + key; }

/// tf.nn.silu is x * sigmoid(beta * x) with a gradient of its own, which saves memory and is the same: it may
/// be differentiated as it is.
void forget_gradients_of_swish(GraphDef& graph) {
  const NodeIndex index(graph);
  for (NodeDef& node : *graph.mutable_node()) {
    if (node.op() != "IdentityN" || !node.attr().contains("_gradient_op_type")) continue;
    const NodeDef* product = index.input(node, 0);
    if (!product || product->op() != "Mul") continue;
    const NodeDef *a = index.input(*product, 0), *b = index.input(*product, 1);
    if ((a && a->op() == "Sigmoid") || (b && b->op() == "Sigmoid"))
      node.mutable_attr()->erase("_gradient_op_type");
  }
}

}  // namespace

std::optional<std::string> ModelFile::value_of(const std::string& name) const {
  const auto present = [this](ValueName value) {
    if (const auto at = renamed.find(value.node); at != renamed.end()) value.node = at->second;
    return value;
  };
  const ValueName own = present(parse_value_name(name));
  if (has_node(graph, own.node)) return own.text();
  std::set<std::string> found, of_default;
  for (const auto& [signature, of] : facts.signatures)
    for (const auto* side : {&of.outputs, &of.inputs})
      for (const auto& [key, value] : *side)
        if (name == key || name == key_text(signature, key)) {
          found.insert(present(parse_value_name(value)).text());
          if (signature == kDefaultSignature)
            of_default.insert(*found.find(present(parse_value_name(value)).text()));
        }
  if (of_default.size() == 1) return *of_default.begin();
  if (found.size() != 1) return std::nullopt;
  return *found.begin();
}

std::vector<std::string> ModelFile::keys_of(const std::string& value) const {
  std::vector<std::string> keys, full;
  for (const auto& [signature, of] : facts.signatures)
    for (const auto& [key, input] : of.inputs)
      if (parse_value_name(input).text() == value) {
        keys.push_back(key);
        full.push_back(key_text(signature, key));
      }
  keys.insert(keys.end(), full.begin(), full.end());
  return keys;
}

std::string ModelFile::hint(const std::string& name) const {
  std::vector<std::string_view> names;
  std::vector<std::string> several;
  for (const auto& [signature, of] : facts.signatures)
    for (const auto* side : {&of.outputs, &of.inputs})
      if (side->contains(name)) several.push_back(key_text(signature, name));
  if (several.size() > 1)
    return fmt::format(": several signatures have it, say which: '{}'", fmt::join(several, "', '"));
  for (const NodeDef& node : graph.node()) names.push_back(node.name());
  for (const auto& [signature, of] : facts.signatures)
    for (const auto* side : {&of.outputs, &of.inputs})
      for (const auto& [key, value] : *side) names.push_back(key);
  std::string nearest = nearest_name(name, names);
  const std::string prefix = name + "/";
  for (const std::string_view other : names)
    if (nearest.empty() && other.starts_with(prefix)) nearest = other;
  return nearest.empty() ? std::string() : "; did you mean '" + nearest + "'?";
}

ModelFile read_model_file(const std::string& file, OnnxUse use) {
  ModelFile read;
  if (is_onnx(file)) {
    read = read_onnx_file(file, use);
  } else {
    GraphDef graph = read_graph_file(file);
    if (auto facts = read_meta_facts(file)) read.facts = *std::move(facts);
    if (auto flat = inline_functions(graph)) {
      read.graph = std::move(flat->graph);
      read.call_problems = std::move(flat->problems);
    } else {
      read.graph = std::move(graph);
    }
  }
  read.source = file;
  forget_gradients_of_swish(read.graph);
  return read;
}

}  // namespace braid::worker
