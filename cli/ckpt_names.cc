// NameList in TensorFlow's checkpoints. Those of a Saver are names of variables. Those of tf.train.Checkpoint
// are paths through Python objects ("model/kernel/.ATTRIBUTES/VARIABLE_VALUE"), and one entry tells the
// variables' own names.
#include <algorithm>
#include <map>
#include <optional>

#include "base/formats/proto_wire.h"
#include "cli/ckpt_tools.h"

namespace braid::cli {
namespace {

constexpr const char* kObjectGraph = "_CHECKPOINTABLE_OBJECT_GRAPH";
constexpr std::string_view kAttribute = "/.ATTRIBUTES/VARIABLE_VALUE";
constexpr std::string_view kSlot = "/.OPTIMIZER_SLOT/";

// Field numbers of TrackableObjectGraph (tensorflow/core/protobuf/trackable_object_graph.proto).
constexpr int kNodes = 1, kAttributes = 2, kFullName = 2, kCheckpointKey = 3;

/// What the object graph knows.
struct NameList {
  std::map<std::string, std::string> of_key;   // checkpoint key -> the variable's own name
  std::map<std::string, std::string> of_flat;  // that name with '_' for each '/' -> itself
  bool has(const std::string& variable) const {
    const auto found = of_flat.find(flat(variable));
    return found != of_flat.end() && found->second == variable;
  }
  static std::string flat(std::string name) {
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
  }
};

NameList full_names(const ValueSource& source) {
  NameList names;
  const auto at = source.values().find(kObjectGraph);
  if (at == source.values().end() || at->second.dtype != DType::String) return names;
  const std::vector<std::byte> bytes = source.read(kObjectGraph);
  constexpr std::size_t kOffsets = 2 * sizeof(std::int64_t);  // of one string
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kOffsets,
                              bytes.size() - kOffsets);
  for (WireReader graph(text); graph.next();) {
    if (!graph.is(kNodes, WireType::Bytes)) continue;
    for (WireReader node = graph.message(); node.next();) {
      if (!node.is(kAttributes, WireType::Bytes)) continue;
      std::string name, key;
      for (WireReader attribute = node.message(); attribute.next();) {
        if (attribute.is(kFullName, WireType::Bytes)) name = attribute.bytes();
        if (attribute.is(kCheckpointKey, WireType::Bytes)) key = attribute.bytes();
      }
      if (name.empty() || key.empty()) continue;
      names.of_key[key] = name;
      names.of_flat[NameList::flat(name)] = name;
    }
  }
  return names;
}

std::string without_attribute(const std::string& key) {
  return key.ends_with(kAttribute) ? key.substr(0, key.size() - kAttribute.size()) : key;
}

/// Keras 3 calls slots "adam/dense_kernel_momentum" and "adam/dense_kernel_velocity", which are Adam's m and
/// v, "sgd/dense_kernel_momentum", "adagrad/dense_kernel_accumulator".
std::optional<std::string> keras_3_slot(const std::string& name, const NameList& names) {
  const std::size_t begin = name.find('/') + 1, end = name.rfind('_');
  if (begin == 0 || end == std::string::npos || end < begin) return std::nullopt;
  const auto owner = names.of_flat.find(name.substr(begin, end - begin));
  const std::string slot = name.substr(end + 1);
  const bool is_adam = name.starts_with("adam");
  if (owner == names.of_flat.end()) return std::nullopt;
  if (slot == "momentum") return owner->second + (is_adam ? "/m" : "/momentum");
  if (slot == "velocity" && is_adam) return owner->second + "/v";
  if (slot == "accumulator") return owner->second + "/accumulator";
  return std::nullopt;
}

/// Keras since TensorFlow 2.11 keeps slots as variables of the optimizer, "Adam/m/dense/kernel" or
/// "m/kernel".
std::optional<std::string> keras_slot(const std::string& name, const NameList& names) {
  for (const std::string_view slot : {"m", "v", "accumulator"})
    for (const std::size_t begin : {std::size_t{0}, name.find('/') + 1}) {
      const std::string prefix = std::string(slot) + "/";
      if (name.compare(begin, prefix.size(), prefix) != 0) continue;
      const std::string owner = name.substr(begin + prefix.size());
      if (names.has(owner)) return owner + "/" + (name.starts_with("SGD/") ? "momentum" : std::string(slot));
    }
  return keras_3_slot(name, names);
}

/// "<variable>/.OPTIMIZER_SLOT/<optimizer>/<slot>/.ATTRIBUTES/VARIABLE_VALUE" -> "<name of variable>/<slot>".
std::string object_name(const std::string& key, const NameList& names) {
  if (const std::size_t slot = key.find(kSlot); slot != std::string::npos) {
    const std::string owner = key.substr(0, slot) + std::string(kAttribute), path = without_attribute(key);
    const auto name = names.of_key.find(owner);
    return (name == names.of_key.end() ? key.substr(0, slot) : name->second) + path.substr(path.rfind('/'));
  }
  const auto name = names.of_key.find(key);
  if (name == names.of_key.end()) return without_attribute(key);
  if (key.find("/_variables/") == std::string::npos) return name->second;
  return keras_slot(name->second, names).value_or(name->second);
}

/// TensorFlow 1's names of slots.
std::string saver_name(const std::string& key, const std::map<std::string, ValueInfo>& values) {
  static const std::map<std::string, std::string> kSlots{
      {"Adam", "m"}, {"Adam_1", "v"}, {"Adagrad", "accumulator"}, {"Momentum", "momentum"}};
  const std::size_t slash = key.rfind('/');
  if (slash == std::string::npos || !values.contains(key.substr(0, slash))) return key;
  const auto slot = kSlots.find(key.substr(slash + 1));
  return slot == kSlots.end() ? key : key.substr(0, slash + 1) + slot->second;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> tensorflow_names(const ValueSource& source) {
  const NameList names = full_names(source);
  std::map<std::string, int> uses;  // two objects may have variables of one name
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [key, info] : source.values()) {
    if (key == kObjectGraph || key.starts_with("save_counter")) continue;
    const std::string name =
        names.of_key.empty() ? saver_name(key, source.values()) : object_name(key, names);
    ++uses[name];
    result.emplace_back(key, name);
  }
  for (auto& [key, name] : result)
    if (uses[name] > 1) name = without_attribute(key);
  return result;
}

}  // namespace braid::cli
