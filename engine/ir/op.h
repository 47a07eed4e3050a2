// What an op is: its signature, its rules (shape, gradient, cost) and its kernels. One op (or one family that
// shares a formula), one stem: engine/ops/nn/softmax.cc holds all of it and ends in `void
// register_softmax(OpRegistry&)`, whose stem the family's list names (family.cmake).
// docs/design/adding_an_op.md walks through an example.
//
// Kernels have two phases. `prepare` runs once, when a program is bound: shapes are static there, so it
// chooses algorithms, makes library primitives and says how much scratch it needs. The prepared `run` only
// computes (host) or enqueues (device): it does not allocate, synchronise, read globals or look anything up,
// and it may be called from any one thread at a time. Everything that changes from step to step comes from
// StepParams.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/init.h"
#include "base/stream_ref.h"
#include "base/thread_pool.h"
#include "engine/ir/graph.h"
#include "engine/ir/op_traits.h"

namespace braid {

struct WaitContext;  // base/wait_context.h

/// The block that a program's kernels read for one step.
struct StepParams {
  std::uint64_t step = 0;  // counts from 0
  float learning_rate = 0.0F;
  float grad_scale = 1.0F;  // multiplies gradients before an update, e.g. 1 / loss scale
  std::uint64_t seed = 0;   // the job's seed; a random op's key is make_rng_key(seed, node name, step)
};

// ----------------------------------------------------------------------------------------------- shape rules

/// What a shape rule sees and fills. Dimensions may be unknown (-1), ranks too.
class InferContext {
 public:
  InferContext(const Node& node, std::span<const OutputInfo> inputs, std::span<const Tensor* const> values)
      : node_(node), inputs_(inputs), values_(values) {}

  const Node& node() const { return node_; }
  int inputs() const { return static_cast<int>(inputs_.size()); }
  DType dtype(int input) const { return inputs_[static_cast<std::size_t>(input)].dtype; }
  const Shape& shape(int input) const { return inputs_[static_cast<std::size_t>(input)].shape; }
  /// The input's value where it is known at compile time (constants and what folds from static shapes), else
  /// null.
  const Tensor* value(int input) const { return values_[static_cast<std::size_t>(input)]; }
  template <class T>
  T attr(std::string_view name, T fallback) const {
    return node_.attrs.get<T>(name, std::move(fallback));
  }

  void output(DType dtype, Shape shape) { outputs_.push_back({dtype, std::move(shape)}); }
  std::vector<OutputInfo> take_outputs() { return std::move(outputs_); }

  /// Throws InvalidArgument: "[Op] node 'name': <message>".
  [[noreturn]] void fail(const std::string& message) const;
  /// Fails unless the input's rank is unknown or equals `rank`.
  void require_rank(int input, int rank) const;
  void require_same_dtype(int first, int second) const;

 private:
  const Node& node_;
  std::span<const OutputInfo> inputs_;
  std::span<const Tensor* const> values_;
  std::vector<OutputInfo> outputs_;
};

// --------------------------------------------------------------------------------------------------- kernels

/// Where kernels on a device write the first data error of a step (an index out of range, a failed check), by
/// a compare-and-swap of `code` from 0. Host kernels throw instead. It is read with the step's results.
struct StepStatus {
  std::int32_t code = 0;  // 0, or a StatusCode
  std::int32_t op = 0;    // position among the program's ops
  std::int64_t value = 0;
  std::int64_t limit = 0;
};
enum class StatusCode : std::int32_t { Ok = 0, IndexOutOfRange = 1, NotFinite = 2 };

/// What a prepared kernel gets for one run. Pointers are to memory of the shapes that prepare saw; handles
/// point at the variable. For a kernel on a device all of them, `params` too, are device memory.
struct KernelArgs {
  void* const* inputs;
  void* const* outputs;
  void* scratch;  // scratch_bytes, 64-byte aligned
  const StepParams* params;
  const WaitContext* wait;  // of the step; null on a device
  StreamRef stream;
  StepStatus* status = nullptr;  // on a device only
  int op = 0;                    // for `status`

  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(outputs[i]);
  }
  /// A variable that the op writes.
  template <class T>
  T* var(int i) const {
    return static_cast<T*>(inputs[i]);
  }
};

/// Fires the node's event; called exactly once, from any thread. A null error means success.
using Completion = std::function<void(ErrorPtr)>;

struct PreparedKernel {
  std::size_t scratch_bytes = 0;
  /// Exactly one of the two is set. `run_async` returns at once; the node is done when the completion fires,
  /// and its inputs, outputs and scratch stay valid until then. What KernelArgs points at is valid during the
  /// call only; copy what is needed.
  std::function<void(const KernelArgs&)> run;
  std::function<void(const KernelArgs&, Completion)> run_async;
};

/// Services of the process that kernels of other folders need (a parameter-server client, a communicator), by
/// type. REQUIRES: filled before programs are bound.
class Services {
 public:
  template <class T>
  void provide(std::shared_ptr<T> service) {
    items_[key<T>()] = std::move(service);
  }
  template <class T>
  T* find() const {
    auto it = items_.find(key<T>());
    return it == items_.end() ? nullptr : static_cast<T*>(it->second.get());
  }

 private:
  template <class T>
  static const void* key() {
    static const char tag = 0;
    return &tag;
  }
  std::map<const void*, std::shared_ptr<void>> items_;
};

class Accelerator;  // engine/device/accelerator.h

struct PrepareContext {
  const Node& node;
  std::span<const OutputInfo> inputs;  // static shapes; a handle has the variable's dtype and shape here
  std::span<const OutputInfo> outputs;
  std::span<const Tensor* const> values;  // inputs known at compile time, else null
  ThreadPool& pool;                       // the intra-op pool
  const Services& services;
  bool deterministic = true;
  Accelerator* accelerator = nullptr;  // of a kernel that runs on a device, else null

  template <class T>
  T attr(std::string_view name, T fallback) const {
    return node.attrs.get<T>(name, std::move(fallback));
  }
  [[noreturn]] void fail(const std::string& message) const;
};

using PrepareFn = std::function<PreparedKernel(const PrepareContext&)>;

// -------------------------------------------------------------------------------------------------- gradient

/// The rows of a sparse gradient: gradient[indices[k], ...] += values[k, ...]; indices may repeat.
struct IndexedSlices {
  ValueRef indices;  // [n] int32 or int64
  ValueRef values;   // [n, row...]
};

/// What a gradient rule sees. Nodes that it makes are named "gradients/<forward name>/<Op>", take the forward
/// node's stream and are differentiable themselves only as far as their ops are.
class GradContext {
 public:
  virtual ~GradContext() = default;
  virtual const Node& node() const = 0;
  virtual ValueRef input(int i) const = 0;
  virtual ValueRef output(int i = 0) const = 0;
  /// Gradient of the loss by output i; not valid() when none flows there.
  virtual ValueRef grad(int i = 0) const = 0;
  virtual const OutputInfo& input_info(int i) const = 0;
  virtual const OutputInfo& output_info(int i = 0) const = 0;

  virtual void set_grad(int input, ValueRef gradient) = 0;
  virtual void set_grad(int input, IndexedSlices gradient) = 0;

  /// Adds a node and gives its output 0; further outputs are {result.node, k}.
  virtual ValueRef op(std::string_view op, std::vector<ValueRef> inputs, AttrMap attrs = {}) = 0;
  virtual ValueRef constant(Tensor value) = 0;

  /// `gradient` summed down to the shape of `like` (undoes broadcasting); no node when the static shapes are
  /// equal.
  ValueRef reduce_to(ValueRef gradient, ValueRef like) {
    return op("braid.ReduceToShapeOf", {gradient, like});
  }
  ValueRef reshape_like(ValueRef value, ValueRef like) { return op("braid.ReshapeLike", {value, like}); }
};

using GradFn = std::function<void(GradContext&)>;

// -------------------------------------------------------------------------------------------------------- op

struct Cost {
  double flops = 0;
  double bytes = 0;  // read and written
};

enum class Access { None, Read, Write, ReadWrite };

/// On which kind of stream nodes of an op are issued. Compute nodes are spread over the compute streams by
/// the policy.
enum class Lane { Compute, Pull, Push, Comm, HostToDevice, DeviceToHost };
std::string_view lane_name(Lane lane);

/// All outputs from the values of all inputs, at compile time (constants; feeds too in `braid graph run`).
/// REQUIRES: shape inference has accepted the node. Throws: InvalidArgument, without the node's name.
using FoldFn = std::vector<Tensor> (*)(const Node& node, std::span<const Tensor* const> inputs);

/// What a node of the op stands for, beyond what its kernel does.
enum class OpRole {
  Ordinary,
  Constant,     // Const: attribute `value`
  Placeholder,  // its value is fed
  Variable,     // VarHandleOp: the handle of a variable
  Read,         // ReadVariableOp: the value of a variable
  Identity,     // its input, for gradients too
  Nothing,      // NoOp: only its control edges count
};

/// What of the outputs is known from attributes and the inputs' shapes, which may be unknown in part; tensors
/// that are not defined, or no tensors, for what is not.
using KnownFn = std::vector<Tensor> (*)(const Node& node, std::span<const OutputInfo> inputs);

/// A product op(a) op(b) of the last two axes, where op() transposes by an attribute.
struct MatrixProduct {
  const char *transpose_a = nullptr, *transpose_b = nullptr;  // attributes; null: the op is no product
  int a = 0, b = 1;                                           // inputs
};

/// Rows that are taken from a table by the indices of input 1.
struct RowGather {
  int table = -1;  // input; -1: the op gathers nothing
  int axis = -1;   // input whose value is the axis; -1: axis 0
};

struct OpDef {
  std::string name = {};
  OpTraits traits = {};
  int min_inputs = 0;
  int max_inputs = 0;  // -1: any number

  std::function<void(InferContext&)> infer = {};
  GradFn gradient = {};                 // null: not differentiable,
  std::string no_gradient_reason = {};  //   and this says why (empty only where `gradient` is set)
  std::function<Cost(const InferContext&, std::span<const OutputInfo> outputs)> cost =
      {};  // null: no flops, all inputs and outputs once
  PrepareFn cpu = {};
  /// For ops without a kernel, as they make or take apart strings, and programs compute none.
  FoldFn fold = nullptr;
  /// Enqueues on a CUDA stream; set by the stem's .cu. Null: none, nodes run on the CPU.
  PrepareFn cuda = {};
  /// Whether `cuda` does this node; null: all that the shape rule allows.
  std::function<bool(const Node&, std::span<const OutputInfo> inputs)> cuda_supports = {};

  /// (output, input): the output is the input's memory, or its first part. An op all of whose outputs are
  /// views has no kernel and runs nowhere.
  std::vector<std::pair<int, int>> views = {};
  /// Input that output 0 equals wherever their types and shapes are equal: such nodes are left out. -1: none.
  int same_shape_identity = -1;
  /// (output, input): the output may overwrite the input where nobody reads it later.
  std::vector<std::pair<int, int>> in_place = {};
  /// What the op does with input i when that is a handle; inputs beyond the list have `further_handles`.
  std::vector<Access> handles = {};
  Access further_handles = Access::None;
  /// Inputs whose values decide output shapes (they must be known at compile time); -1 is the last input.
  std::vector<int> shape_values = {};
  /// Inputs of which only the shape is used: no data dependence remains after shape inference.
  std::vector<int> shape_only = {};
  bool stateful = false;     // two runs may differ: never folded or merged (random ops)
  bool side_effect = false;  // kept when it is a target even though nobody reads it (assignments, pushes)
  Lane lane = Lane::Compute;

  OpRole role = OpRole::Ordinary;
  /// Null: what folding gives.
  KnownFn known = nullptr;
  /// Input whose value output 0 has, although the op is never folded, for what else happens there (a feed may
  /// replace it; it checks or prints). -1: none.
  int stands_for = -1;
  /// Input whose shape output 0 has, where it only gives input 0 that shape. -1: none.
  int shape_like = -1;
  MatrixProduct product = {};
  RowGather gathers = {};
  /// Of ops called braid.*: files may have it, as models write it.
  bool in_files = false;
};

/// "[Op] node 'name'": what messages about a node begin with.
std::string place_of(const Node& node);

inline Access handle_access(const OpDef& op, std::size_t input) {
  return input < op.handles.size() ? op.handles[input] : op.further_handles;
}

class OpRegistry {
 public:
  /// Throws: Internal for a duplicate, or a definition without `infer`, or without both gradient and reason.
  void add(OpDef def);
  /// Gives an op that is registered its kernel for CUDA. `supports` tells for which nodes; null: for all.
  /// Throws: Internal for an op that does not exist or has one.
  void add_cuda(std::string_view name, PrepareFn prepare,
                std::function<bool(const Node&, std::span<const OutputInfo>)> supports = {});
  const OpDef* find(std::string_view name) const;
  const OpDef& require(std::string_view name) const;
  std::vector<const OpDef*> all() const;  // by name

  /// The process's registry with all ops of the engine; other folders add theirs at start-up, before graphs
  /// are made.
  static OpRegistry& global();

 private:
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops_;
};

}  // namespace braid
