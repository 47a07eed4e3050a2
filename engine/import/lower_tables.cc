#include "engine/import/lower_tables.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/import/node_inputs.h"

namespace braid {
namespace {

bool is_table(const NodeDef& node) { return node.op() == "HashTable" || node.op() == "HashTableV2"; }

/// The op's name without its version.
std::string family_of(const NodeDef& node) {
  const std::string& op = node.op();
  return op.ends_with("V2") ? op.substr(0, op.size() - 2) : op;
}

struct Contents {
  std::string keys, values;
};

class Lowering {
 public:
  explicit Lowering(const GraphDef& graph) {
    result_.graph = graph;
    for (const NodeDef& node : graph.node()) {
      names_.insert(node.name());
      if (!is_table(node)) continue;
      const auto shared = node.attr().find("shared_name");
      const bool is_shared = shared != node.attr().end() && !shared->second.s().empty();
      tables_[node.name()] = is_shared ? "shared " + shared->second.s() : node.name();
      types_[tables_[node.name()]] = &node;
    }
  }

  LoweredTables run() {
    auto& nodes = *result_.graph.mutable_node();
    for (NodeDef& node : nodes) initialise(node);
    for (NodeDef& node : nodes) look_up(node);
    for (NodeDef& node : nodes)
      if (is_table(node)) only_wait(node);
    for (NodeDef& file : files_) *nodes.Add() = std::move(file);
    return std::move(result_);
  }

 private:
  /// The table that is the node's first input; null where that is none.
  const std::string* table_of(const std::vector<std::string>& inputs) const {
    if (inputs.empty()) return nullptr;
    const auto at = tables_.find(split_value(inputs[0]).first);
    return at == tables_.end() ? nullptr : &at->second;
  }

  void initialise(NodeDef& node) {
    const std::string family = family_of(node);
    const std::vector<std::string> inputs = data_inputs(node);
    const std::string* table = table_of(inputs);
    if (!table) return;
    if ((family == "InitializeTable" || family == "LookupTableImport") && inputs.size() == 3) {
      contents_.try_emplace(*table, Contents{inputs[1], inputs[2]});
      only_wait(node);
    } else if (family == "InitializeTableFromTextFile" && inputs.size() == 2) {
      const std::string file = add_file(node, *types_.at(*table), inputs[1]);
      contents_.try_emplace(*table, Contents{file, file + ":1"});
      only_wait(node);
    }
  }

  std::string add_file(const NodeDef& initialiser, const NodeDef& table, const std::string& name) {
    NodeDef& file = files_.emplace_back();
    file.set_name(initialiser.name() + "/table");
    while (!names_.insert(file.name()).second) file.set_name(file.name() + "_");
    file.set_op("braid.TableOfFile");
    file.set_device(initialiser.device());
    file.add_input(name);
    *file.mutable_attr() = initialiser.attr();
    for (const char* type : {"key_dtype", "value_dtype"})
      if (const auto at = table.attr().find(type); at != table.attr().end())
        (*file.mutable_attr())[type] = at->second;
    return file.name();
  }

  void look_up(NodeDef& node) {
    const std::string family = family_of(node);
    if (family != "LookupTableFind" && family != "LookupTableSize") return;
    const std::vector<std::string> inputs = data_inputs(node);
    const std::string* table = table_of(inputs);
    if (!table) {
      result_.problems.emplace(node.name(), "its input is no table that the graph makes and fills");
      return;
    }
    const auto at = contents_.find(*table);
    if (at == contents_.end()) {
      result_.problems.emplace(node.name(), "nothing in the graph fills its table");
    } else if (family == "LookupTableSize") {
      node.set_op("Size");
      replace_data_inputs(node, {at->second.keys});
      (*node.mutable_attr())["out_type"].set_type(DT_INT64);
    } else if (inputs.size() == 3) {
      node.set_op("braid.LookupTableFind");
      replace_data_inputs(node, {inputs[1], inputs[2], at->second.keys, at->second.values});
    }
  }

  LoweredTables result_;
  std::set<std::string> names_;
  std::map<std::string, std::string> tables_;    // node -> the table, which several nodes may share
  std::map<std::string, const NodeDef*> types_;  // table -> a node that makes it, in the source
  std::map<std::string, Contents> contents_;     // by table
  std::vector<NodeDef> files_;                   // added at the end
};

}  // namespace

std::optional<LoweredTables> lower_tables(const GraphDef& graph) {
  const auto& nodes = graph.node();
  const bool has_tables = std::any_of(nodes.begin(), nodes.end(), [](const NodeDef& node) {
    return is_table(node) || node.op().starts_with("LookupTable");
  });
  if (!has_tables) return std::nullopt;
  return Lowering(graph).run();
}

}  // namespace braid
