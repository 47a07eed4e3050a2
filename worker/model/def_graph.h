// Looks at the nodes of a flat GraphDef by name, and changes who uses what: what a job's graph needs before
// it is imported. Thread rule: one thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"
#include "proto/graph.pb.h"

namespace braid::worker {

/// "node", "node:0", "node:1", "^node".
struct ValueName {
  std::string node;
  int output = 0;
  bool control = false;

  /// "node" or "node:1".
  std::string text() const { return output == 0 ? node : node + ":" + std::to_string(output); }
};
ValueName parse_value_name(std::string_view text);

/// Nodes by name; good until nodes are added or removed.
class NodeIndex {
 public:
  explicit NodeIndex(const GraphDef& graph);
  const NodeDef* find(std::string_view name) const;
  /// Its place in the file; -1: none.
  int place(std::string_view name) const;
  const NodeDef* input(const NodeDef& node, int index) const;  // of data inputs; null where there is none
  /// What `roots` (values or nodes) need, themselves too, in the order of the file.
  std::vector<const NodeDef*> above(const std::vector<std::string>& roots) const;
  std::vector<std::string_view> names() const;

 private:
  const GraphDef& graph_;
  std::unordered_map<std::string, int> by_name_;
};

/// The type and, where the node says it, the shape of a value.
struct DeclaredValue {
  DType dtype = DType::Invalid;  // not said
  Shape shape = Shape::unknown_rank();
};
DeclaredValue declared_value(const GraphDef& graph, const NodeDef& node, int output);

bool is_variable(const NodeDef& node);  // a handle, or a reference variable
std::string variable_name(const NodeDef& variable);
/// The variable that the first input of `user` is, through views; null where it is none.
const NodeDef* variable_of(const NodeIndex& index, const NodeDef& user);

/// Each use of `from` as a value becomes one of `to`.
void replace_value(GraphDef& graph, const ValueName& from, const std::string& to);
/// The node gets another name, and so do its uses; a variable keeps its own.
void rename_node(GraphDef& graph, const std::string& from, const std::string& to);
/// `base`, or the first of base_1, base_2, ... that no node has.
std::string free_name(const NodeIndex& index, const std::string& base);

}  // namespace braid::worker
