// Writes GraphDefs from C++: nodes with TensorFlow's op names and attributes, name scopes, and annotations of
// streams, colocation and devices. What it writes is a plain GraphDef that the importer loads and other tools
// read; annotations are attributes (`_stream_id` int, `_include_grad` bool, `_class` "loc:@name") and the
// node's device field. Types and shapes are checked when the graph is imported (engine/import/import.h), all
// nodes at once, not here.
//
//   GraphBuilder b;
//   Output x = b.placeholder("x", DType::Float32, {-1, 784}), h;
//   Output w = b.variable("w", Shape{784, 16}, {.init = {InitKind::Normal, 0.0F, 0.1F}});
//   { StreamScope s(b, 1); h = b.relu(b.matmul(x, b.read(w))); }
//   StreamHandle side = b.get_stream();  // the next one that nothing else uses
//
// Thread rule: one thread. Throws (everything that adds a node or opens a scope): InvalidArgument for a name
// that is taken, an input or target that is no value of this graph, a stream id below 0.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/init.h"
#include "engine/ir/attr.h"

namespace braid {

class GraphDef;

/// One output of a node of the graph that is being built.
struct Output {
  std::string node;
  int index = 0;
  std::string name() const { return index == 0 ? node : node + ":" + std::to_string(index); }
};

struct VariableOptions {
  InitSpec init = {};
  bool trainable = true;
  bool sparse = false;           // an embedding table: rows are read by ResourceGather and updated by rows
  std::string former_name = {};  // inside the name scopes: what older checkpoints call it
};

/// A stream of the graph that is being built, for StreamScope.
class StreamHandle {
 public:
  /// That of an automatic stream may still change while the graph is built: an id that the user writes is the
  /// user's, and the automatic stream, with its nodes, moves to the next free one.
  int id() const { return *id_; }

 private:
  friend class GraphBuilder;
  friend class StreamScope;
  explicit StreamHandle(std::shared_ptr<int> id) : id_(std::move(id)) {}
  std::shared_ptr<int> id_;
};

class GraphBuilder {
 public:
  GraphBuilder();
  ~GraphBuilder();

  /// Adds a node of any op of docs/user/graphs.md by TensorFlow's name and gives its output 0; output i is
  /// Output{node, i}. Attributes that are left out have TensorFlow's defaults. `name` is made unique inside
  /// the name scopes ("Relu", "Relu_1"); empty takes the op's name.
  Output op(const std::string& op, const std::vector<Output>& inputs, AttrMap attrs = {},
            const std::string& name = {});
  /// The node of `node` also waits for that of `before`.
  void control_dependency(const Output& before, const Output& node);

  /// A value that each step is fed with, under exactly this name inside the name scopes. Dimensions that are
  /// not known yet are -1.
  Output placeholder(const std::string& name, DType dtype, Shape shape);
  Output constant(const Tensor& value, const std::string& name = {});
  /// A VarHandleOp of float32; its value is read with read(). Its initial value is made by base/init.h from
  /// (job seed, name) when the job starts: attributes _init_kind, _init_a, _init_b, _trainable, _sparse.
  Output variable(const std::string& name, Shape shape, const VariableOptions& options);
  /// The variable's value. Throws: InvalidArgument unless `handle` is what variable() gave.
  Output read(const Output& handle);

  /// The stream of that id; without one, an automatic stream: the lowest id from 1 on that neither a handle
  /// nor a scope has.
  StreamHandle get_stream(std::optional<int> id = std::nullopt);

  // Short forms of common ops; everything else goes through op().
  Output matmul(const Output& a, const Output& b,  // [M, K] x [K, N] -> [M, N]
                bool transpose_a = false, bool transpose_b = false);
  Output add(const Output& a, const Output& b);                             // broadcasts
  Output mul(const Output& a, const Output& b);                             // broadcasts
  Output bias_add(const Output& x, const Output& bias);                     // [..., C] + [C]
  Output relu(const Output& x);                                             // any shape
  Output reshape(const Output& x, const std::vector<std::int64_t>& shape);  // one dimension may be -1
  Output concat(const std::vector<Output>& values, int axis);               // axis < 0 counts from the last
  /// ResourceGather: rows of a variable [R, ...] at `indices` [...] int32 or int64 -> [indices..., row...].
  /// An index out of range fails the step, naming it.
  Output gather(const Output& handle, const Output& indices);
  Output reduce_mean(const Output& x, const std::vector<std::int64_t>& axes = {},
                     bool keep_dims = false);  // empty: all axes
  /// relu(x W + b) or x W + b, [B, in] -> [B, out]; makes variables "<name>/kernel" [in, out] (Glorot
  /// uniform) and "<name>/bias" [out] (zeros).
  Output dense(const std::string& name, const Output& x, std::int64_t in, std::int64_t out, bool with_relu);

  /// The name that a placeholder or variable `name` has here, inside the name scopes.
  std::string full_name(const std::string& name) const;

  /// The graph so far. The reference is good as long as the builder.
  const GraphDef& graph() const;

 private:
  friend class NameScope;
  friend class StreamScope;
  friend class ColocateScope;
  friend class DeviceScope;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Prefix "name/" for nodes and variables made in its life. Nests.
class NameScope {
 public:
  NameScope(GraphBuilder& builder, const std::string& name);
  ~NameScope();
  NameScope(const NameScope&) = delete;

 private:
  GraphBuilder& builder_;
};

/// Compute stream for nodes made in its life; the innermost wins. Their backward nodes follow unless
/// include_grad is false.
class StreamScope {
 public:
  StreamScope(GraphBuilder& builder, int stream, bool include_grad = true);
  StreamScope(GraphBuilder& builder, const StreamHandle& stream, bool include_grad = true);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;

 private:
  GraphBuilder& builder_;
};

/// Nodes made in its life take the target node's stream; beats StreamScope. In scopes inside of each other a
/// node is with all targets, which then have one stream.
class ColocateScope {
 public:
  ColocateScope(GraphBuilder& builder, const Output& target);
  ~ColocateScope();
  ColocateScope(const ColocateScope&) = delete;

 private:
  GraphBuilder& builder_;
};

/// Nodes made in its life ask for this device: "/gpu:0", "/job:worker/task:1/device:CPU:0", or a part of it;
/// an empty text asks for none. The innermost wins. The importer refuses another text.
class DeviceScope {
 public:
  DeviceScope(GraphBuilder& builder, const std::string& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  GraphBuilder& builder_;
};

}  // namespace braid
