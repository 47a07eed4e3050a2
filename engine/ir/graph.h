// The typed graph that all passes work on: nodes in a flat vector, values named by (node, output), one
// variable concept. A variable is a VarHandleOp node; its output 0 (dtype Resource) is the handle that reads
// and writes take as an input, and at run time the handle's pointer is the variable's memory. Reference
// variables are lowered to this form by engine/import. Owns structure only: what an op means is in its OpDef
// (engine/ir/op.h), who runs where is decided by the compiler (engine/compile). Thread rule: a Graph is built
// by one thread; const access from many is safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/ir/attr.h"

namespace braid {

struct OpDef;
class OpRegistry;

using NodeId = std::int32_t;
inline constexpr NodeId kNoNode = -1;
inline constexpr int kNoStream = -1;

struct ValueRef {
  NodeId node = kNoNode;
  int output = 0;
  bool valid() const { return node != kNoNode; }
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

struct OutputInfo {
  DType dtype = DType::Invalid;
  Shape shape = Shape::unknown_rank();
};

struct Node {
  NodeId id = kNoNode;
  std::string name;
  const OpDef* op = nullptr;
  AttrMap attrs;
  std::vector<ValueRef> inputs;
  std::vector<NodeId> control_inputs;
  std::vector<OutputInfo> outputs;  // filled by shape inference
  std::vector<Tensor>
      known_values;  // filled by shape inference: values known at compile time; empty or undefined where not
  int stream = kNoStream;          // hand-set stream (attribute _stream_id), or none
  NodeId colocate_with = kNoNode;  // adopts that node's stream; beats `stream`
  bool include_grad = true;        // its backward nodes take its stream
  std::string device;              // as written, e.g. "/job:worker/task:1/cpu:0"
  NodeId forward_of = kNoNode;     // backward nodes: the node whose gradient they compute
  bool removed = false;
};

class Graph {
 public:
  /// Adds a node. Output types and shapes are inferred at once from what is known of the inputs
  /// (engine/ir/infer.h). Throws: InvalidArgument naming the node: duplicate name, wrong number of inputs,
  /// what the op's shape rule refuses.
  NodeId add(Node node);

  int size() const { return static_cast<int>(nodes_.size()); }  // removed nodes included
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  Node& mutable_node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  /// kNoNode when there is none.
  NodeId find(std::string_view name) const;
  /// `base`, or `base_1`, `base_2`, ... : the first that is free.
  std::string unique_name(std::string_view base) const;

  const OutputInfo& info(ValueRef value) const {
    return node(value.node).outputs[static_cast<std::size_t>(value.output)];
  }
  /// The value where it is known at compile time (engine/ir/infer.h), else null.
  const Tensor* known_value(ValueRef value) const;
  /// "name" for output 0, "name:1" for later ones.
  std::string value_name(ValueRef value) const;
  /// The inverse: "name", "name:1" or "^name" (control; output -1). Throws: InvalidArgument when there is no
  /// such node or output.
  ValueRef parse_value(std::string_view text) const;

  /// Every use of `from` becomes a use of `to`.
  void replace_uses(ValueRef from, ValueRef to);
  /// All replacements in one walk over the graph; results are not replaced again.
  void replace_uses(const std::map<ValueRef, ValueRef>& replacements);
  /// The node stays in place as `removed` and its name becomes free. REQUIRES: no live node that will run
  /// uses it.
  void remove(NodeId id);

  /// Live nodes, inputs and control inputs first, ties by id; edges from removed nodes (above a fed value) do
  /// not count. Throws: InvalidArgument naming the nodes of a cycle.
  std::vector<NodeId> topological_order() const;

 private:
  // Look-up by string_view without making a string.
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  template <class T>
  using ByName = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

  std::vector<Node> nodes_;
  ByName<NodeId> by_name_;
  ByName<std::int64_t> next_suffix_;  // "base" -> n: "base_1" to "base_<n-1>" have been taken
};

/// What a VarHandleOp node says about its variable.
struct VariableInfo {
  std::string name;  // attribute shared_name, or the node's name
  DType dtype = DType::Float32;
  Shape shape;
  bool trainable = true;  // attribute _trainable (ours), default true
  bool sparse = false;    // attribute _sparse (ours): an embedding table, updated by rows; on a parameter
                          // server it is a sparse table
  NodeId handle = kNoNode;
};
/// In the order of the handles' node ids; several handles of one variable give one entry.
/// Throws: InvalidArgument when two handles of one variable differ in type or shape.
std::vector<VariableInfo> list_variables(const Graph& graph);

/// The variable behind a handle, which may have passed through views (Identity). Throws: InvalidArgument when
/// it is no handle.
VariableInfo variable_of(const Graph& graph, ValueRef handle);

}  // namespace braid
