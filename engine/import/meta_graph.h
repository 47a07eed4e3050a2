// What a MetaGraphDef says beside its graph (TensorFlow 1's .meta, the graph of a SavedModel that is for
// serving): its collections, signatures, saver and variables. Field numbers are those of TensorFlow's
// meta_graph.proto, saver.proto, variable.proto and saved_object_graph.proto. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace braid {

/// Keys of inputs and outputs -> values of the graph ("node:0").
struct GraphSignature {
  std::map<std::string, std::string> inputs, outputs;
};

struct MetaGraphFacts {
  std::map<std::string, GraphSignature> signatures;
  std::vector<std::string> update_ops;  // names of nodes
  /// Names of variables; nothing where the file does not say which are trained.
  std::optional<std::set<std::string>> trainable;
  std::map<std::string, std::string> initial_values;  // variable -> the value that it begins with
  std::set<std::string> local_variables;              // of metrics and the like
  std::string saver_filename, restore_op;             // of its saver; empty: none
  /// The checkpoint inside a SavedModel's folder (a prefix); empty: none.
  std::filesystem::path variables;
};

/// Nothing for a file that holds a plain graph. Throws: InvalidArgument (unreadable), DataLoss (damage).
std::optional<MetaGraphFacts> read_meta_facts(const std::filesystem::path& file);

}  // namespace braid
