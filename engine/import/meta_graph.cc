#include "engine/import/meta_graph.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "engine/import/node_inputs.h"

namespace braid {
namespace {

bool is_for_serving(std::string_view meta) {
  for (WireReader reader(meta); reader.next();) {
    if (!reader.is(1, WireType::Bytes)) continue;
    for (WireReader info = reader.message(); info.next();)
      if (info.is(4, WireType::Bytes) && info.bytes() == "serve") return true;
  }
  return false;
}

/// The MetaGraphDef in a SavedModel, whose first field is a number.
std::optional<std::string_view> meta_of_saved_model(std::string_view message) {
  WireReader reader(message);
  if (!reader.next() || !reader.is(1, WireType::Varint)) return std::nullopt;
  std::optional<std::string_view> found;
  while (reader.next()) {
    if (!reader.is(2, WireType::Bytes)) continue;
    if (is_for_serving(reader.bytes())) return reader.bytes();
    found = reader.bytes();
  }
  return found;
}

struct MapEntry {
  std::string key;
  std::string_view value;
};

MapEntry map_entry(WireReader reader) {
  MapEntry entry;
  while (reader.next()) {
    if (reader.is(1, WireType::Bytes)) entry.key = reader.bytes();
    if (reader.is(2, WireType::Bytes)) entry.value = reader.bytes();
  }
  return entry;
}

/// A TensorInfo's name is field 1.
std::string tensor_name(std::string_view info) {
  std::string name;
  for (WireReader reader(info); reader.next();)
    if (reader.is(1, WireType::Bytes)) name = reader.bytes();
  return name;
}

GraphSignature read_signature(std::string_view message) {
  GraphSignature signature;
  for (WireReader reader(message); reader.next();) {
    if (!reader.is(1, WireType::Bytes) && !reader.is(2, WireType::Bytes)) continue;
    const MapEntry entry = map_entry(reader.message());
    (reader.field() == 1 ? signature.inputs : signature.outputs)[entry.key] = tensor_name(entry.value);
  }
  return signature;
}

/// A CollectionDef has a list of names (field 1) or of bytes (field 2), each a message with a field 1.
std::vector<std::string_view> collection_values(std::string_view message) {
  std::vector<std::string_view> values;
  for (WireReader reader(message); reader.next();) {
    if (!reader.is(1, WireType::Bytes) && !reader.is(2, WireType::Bytes)) continue;
    for (WireReader list = reader.message(); list.next();)
      if (list.is(1, WireType::Bytes)) values.push_back(list.bytes());
  }
  return values;
}

struct VariableFacts {
  std::string name, initial_value;
};

VariableFacts read_variable(std::string_view message) {
  VariableFacts facts;
  for (WireReader reader(message); reader.next();) {
    if (reader.is(1, WireType::Bytes))
      facts.name = node_of(std::string(reader.bytes()));  // "w:0" is the variable w
    if (reader.is(6, WireType::Bytes)) facts.initial_value = reader.bytes();
  }
  return facts;
}

void read_collection(const MapEntry& entry, MetaGraphFacts& facts) {
  const std::vector<std::string_view> values = collection_values(entry.value);
  if (entry.key == "update_ops") {
    for (const std::string_view value : values) facts.update_ops.push_back(node_of(std::string(value)));
    return;
  }
  const bool trained = entry.key == "trainable_variables", local = entry.key == "local_variables";
  if (!trained && !local && entry.key != "variables") return;
  if (trained) facts.trainable.emplace();
  for (const std::string_view value : values) {
    const VariableFacts variable = read_variable(value);
    if (trained) facts.trainable->insert(variable.name);
    if (local) facts.local_variables.insert(variable.name);
    if (!variable.initial_value.empty()) facts.initial_values[variable.name] = variable.initial_value;
  }
}

void read_saver(WireReader reader, MetaGraphFacts& facts) {
  while (reader.next()) {
    if (reader.is(1, WireType::Bytes)) facts.saver_filename = reader.bytes();
    if (reader.is(3, WireType::Bytes)) facts.restore_op = reader.bytes();
  }
}

/// Of a SavedVariable, trainable is field 3 and name field 6; a SavedObject has it as field 7.
void read_objects(WireReader objects, MetaGraphFacts& facts) {
  std::set<std::string> trained;
  bool any = false;
  while (objects.next()) {
    if (!objects.is(1, WireType::Bytes)) continue;
    for (WireReader object = objects.message(); object.next();) {
      if (!object.is(7, WireType::Bytes)) continue;
      std::string name;
      bool trainable = false;
      for (WireReader variable = object.message(); variable.next();) {
        if (variable.is(3, WireType::Varint)) trainable = variable.varint() != 0;
        if (variable.is(6, WireType::Bytes)) name = variable.bytes();
      }
      any = true;
      if (trainable) trained.insert(name);
    }
  }
  if (any && !facts.trainable) facts.trainable = std::move(trained);
}

MetaGraphFacts read_facts(std::string_view meta) {
  MetaGraphFacts facts;
  for (WireReader reader(meta); reader.next();) {
    if (reader.is(3, WireType::Bytes)) read_saver(reader.message(), facts);
    if (reader.is(4, WireType::Bytes)) read_collection(map_entry(reader.message()), facts);
    if (reader.is(5, WireType::Bytes)) {
      const MapEntry entry = map_entry(reader.message());
      if (!entry.key.starts_with("__saved_model")) facts.signatures[entry.key] = read_signature(entry.value);
    }
    if (reader.is(7, WireType::Bytes)) read_objects(reader.message(), facts);
  }
  return facts;
}

/// A MetaGraphDef has one graph (field 2), which begins with a node that has a name and an op.
bool is_meta_graph(std::string_view message) {
  int graphs = 0;
  bool is_graph = false;
  for (WireReader reader(message); reader.next();) {
    if (!reader.is(2, WireType::Bytes)) continue;
    ++graphs;
    WireReader first = reader.message();
    is_graph = first.next() && first.is(1, WireType::Bytes);
  }
  return graphs == 1 && is_graph;
}

}  // namespace

std::optional<MetaGraphFacts> read_meta_facts(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::string content = read_file(is_folder ? path / "saved_model.pb" : path);
  try {
    if (const auto meta = meta_of_saved_model(content)) {
      MetaGraphFacts facts = read_facts(*meta);
      const std::filesystem::path folder = is_folder ? path : path.parent_path();
      if (std::filesystem::exists(folder / "variables" / "variables.index"))
        facts.variables = folder / "variables" / "variables";
      return facts;
    }
    if (is_meta_graph(content)) return read_facts(content);
  } catch (const DataLoss&) {  // text, or a graph: who loads it tells what is wrong with it
  }
  return std::nullopt;
}

}  // namespace braid
