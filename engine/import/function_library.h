// The functions of a GraphDef's library, and what nodes of the graph and of functions have to do with them:
// which call one, which conditionals have branches that can both be computed, and which outputs they have.
// Changes nothing (inline_functions.h does). Thread rule: const is safe from any thread.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/graph.pb.h"

namespace braid {

/// The attribute of a node whose gradient is another one than its op's.
inline constexpr const char* kOwnGradient = "_gradient_op_type";

/// A call: the function and the attributes that its placeholders stand for.
struct FunctionCall {
  using Attrs = google::protobuf::Map<std::string, AttrValue>;
  const FunctionDef* function = nullptr;  // null: the node is no call
  const Attrs* attrs = nullptr;
  std::size_t first_argument = 0;  // among the node's inputs
};

/// The branches of a conditional: of an If what is taken where its condition is true, and the other; of a
/// Case in the order of their numbers.
struct FunctionChoice {
  std::vector<FunctionCall> branches;  // empty: the node is none
  bool by_number = false;              // a Case

  std::string name_of(std::size_t branch) const {
    if (by_number) return "branch" + std::to_string(branch);
    return branch == 0 ? "then" : "else";
  }
  /// What names the branch's function.
  AttrValue attr_of(const NodeDef& node, std::size_t branch) const;
};

class FunctionLibrary {
 public:
  static constexpr std::size_t kMostNested = 200;  // each takes some of the stack, and adds to the names

  /// `graph` outlives it.
  explicit FunctionLibrary(const GraphDef& graph);

  /// By the op's name, of a (Stateful)PartitionedCall by its attribute `f`, and of an Assert as TensorFlow 2
  /// writes it.
  FunctionCall call_of(const NodeDef& node) const;
  /// The function that an attribute names, if the library has it.
  FunctionCall function_attr(const NodeDef& node, const char* name) const;
  /// The branches of an If or Case that can all be computed: they have no effects, and an If's condition is a
  /// bool. Of other nodes nothing.
  FunctionChoice choice_of(const NodeDef& node) const { return choice_at(node, 0); }

  /// The number of an output by the parts of its name in a function: {node, output name, k}, or {node, k}.
  int output_number(const NodeDef& node, const std::vector<std::string>& parts) const;
  /// The gradient that a call has instead of its nodes'; empty: none. What TensorFlow 2 writes on every call,
  /// "PartitionedCall-7", is the name of the usual one.
  std::string own_gradient(const FunctionDef& function, const NodeDef& call) const;

 private:
  FunctionCall function_of(const NameAttrList& function) const;
  bool is_guarded_assertion(const NodeDef& node) const;
  bool only_computes(const FunctionDef& function, std::size_t nested) const;
  FunctionChoice choice_at(const NodeDef& node, std::size_t nested) const;

  std::unordered_map<std::string, const FunctionDef*> functions_;
  std::unordered_map<std::string, std::string> gradients_;  // of functions that have one of their own
};

/// Nodes that nobody in the function reads: in older files those that run for their effect.
std::set<std::string> unread_nodes(const FunctionDef& function);

}  // namespace braid
