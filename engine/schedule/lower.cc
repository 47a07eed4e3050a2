// Nodes to ops and values to buffers. What has no kernel is resolved here: constants and folded values,
// feeds, handles, views (their values are the memory that they look at) and nodes that only join control
// edges. A node that depends on one of them depends on what is behind it.
#include <algorithm>

#include "base/error.h"
#include "engine/graph/shape_values.h"
#include "engine/ir/offload_attrs.h"
#include "engine/ir/op.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/schedule/passes.h"

namespace braid {
namespace {

// Behind a NoOp of many inputs with many users, edges would multiply; above this it becomes an op itself.
constexpr std::size_t kLargestFlattening = 64;

struct Value {
  int buffer = -1;
  int producer = -1;      // the op that writes it
  NodeId read = kNoNode;  // of a variable's memory as a value: the node that reads it
};

class Lowering {
 public:
  explicit Lowering(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    values_.resize(static_cast<std::size_t>(graph_.size()));
    after_.resize(static_cast<std::size_t>(graph_.size()));
    users_.resize(static_cast<std::size_t>(graph_.size()), 0);
    const std::vector<NodeId> order = graph_.topological_order();
    for (const NodeId id : order) {
      for (const ValueRef input : graph_.node(id).inputs) ++users_[index(input.node)];
      for (const NodeId control : graph_.node(id).control_inputs) ++users_[index(control)];
    }
    add_feeds();
    for (const NodeId id : order) lower_node(graph_.node(id));
    for (std::size_t i = 0; i < plan_.fetches.size(); ++i)
      add_fetch(plan_.request.fetches[i], plan_.fetches[i]);
  }

 private:
  static std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

  int add_buffer(BufferKind kind, std::uint64_t bytes, int position, Domain domain = Domain::Host) {
    plan_.program.buffers.push_back({kind, bytes, 0, position, domain});
    return static_cast<int>(plan_.program.buffers.size()) - 1;
  }

  std::uint64_t bytes_of(const Node& node, const OutputInfo& info) const {
    if (!info.shape.is_static())
      throw InvalidArgument(place_of(node) + ": an output has shape " + info.shape.to_string() +
                            "; programs need shapes that follow from the feeds'");
    const std::size_t size = dtype_size(info.dtype);
    if (size == 0)
      throw InvalidArgument(place_of(node) + ": values of type " + std::string(dtype_name(info.dtype)) +
                            " cannot be computed by a program, only fed");
    return static_cast<std::uint64_t>(info.shape.elements()) * size;
  }

  void add_feeds() {
    for (std::size_t i = 0; i < plan_.feeds.size(); ++i) {
      const FeedInfo& feed = plan_.feeds[i];
      const std::uint64_t bytes = static_cast<std::uint64_t>(feed.shape.elements()) * dtype_size(feed.dtype);
      const int buffer = add_buffer(BufferKind::Feed, bytes, static_cast<int>(i));
      plan_.program.feeds.push_back({plan_.request.feeds[i].name, feed.dtype, feed.shape, buffer});
    }
  }

  /// The ops that must be complete when this node counts as done.
  void lower_node(const Node& node) {
    auto& values = values_[index(node.id)];
    values.resize(node.outputs.size());
    bool all_known = !node.outputs.empty();
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
      const int feed = plan_.feed_of({node.id, o});
      if (feed >= 0) values[index(o)].buffer = plan_.program.feeds[index(feed)].buffer;
      all_known = all_known && graph_.known_value({node.id, o}) != nullptr;
    }
    if (plan_.is_fed(node)) return;
    if (all_known) {
      after_[index(node.id)] = dependencies(node);
    } else if (node.op->role == OpRole::Variable) {
      values[0].buffer = variable_buffer(node);
    } else if (is_view(node)) {
      lower_view(node);
    } else if (node.outputs.empty() && node.inputs.empty() && node.op->role == OpRole::Nothing) {
      lower_join(node);
    } else {
      lower_kernel(node);
    }
  }

  static bool is_view(const Node& node) {
    return !node.op->views.empty() && node.op->views.size() == node.outputs.size();
  }

  void lower_view(const Node& node) {
    for (const auto& [output, input] : node.op->views) {
      Value& value = values_[index(node.id)][index(output)];
      if (value.buffer >= 0) continue;  // fed
      value = value_of(node.inputs[index(input)]);
      if (is_variable(value.buffer) && value.read == kNoNode &&
          node.outputs[index(output)].dtype != DType::Resource)
        value.read = node.id;
    }
    after_[index(node.id)] = dependencies(node);
  }

  void lower_join(const Node& node) {
    std::vector<int> deps = dependencies(node);
    if (deps.size() * static_cast<std::size_t>(users_[index(node.id)]) > kLargestFlattening) {
      ProgramOp op;
      op.kind = OpKind::Join;
      op.node = node.id;
      op.name = node.name;
      op.op = node.op->name;
      op.domain = plan_.domain_of(node.id);
      op.deps = std::move(deps);
      deps = {add_op(std::move(op))};
    }
    after_[index(node.id)] = std::move(deps);
  }

  void lower_kernel(const Node& node) {
    if (!node.op->cpu && plan_.domain_of(node.id) == Domain::Host)
      throw InvalidArgument(
          place_of(node) + ": the op has no CPU kernel" +
          (node.op->fold ? ": its inputs must be known before the program runs; feed what it gives" : ""));
    if (const int input = unknown_shape_value(graph_, node); input >= 0)
      throw InvalidArgument(
          place_of(node) + ": the value of input " + std::to_string(input) +
          " must be known before the program runs; feed what the node gives, or what follows from it");
    ProgramOp op;
    op.node = node.id;
    op.name = node.name;
    op.op = node.op->name;
    op.domain = plan_.domain_of(node.id);
    // What a device's stream carries is done in the stream's order.
    op.async = node.op->lane != Lane::Compute && op.domain == Domain::Host;
    op.deps = dependencies(node);
    const int number = plan_.ops();
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      Operand operand;
      if (!uses_shape_only(node, i)) {
        const Value value = value_of(node.inputs[i]);
        operand = {value.buffer, access_of(node, i, value), value.producer};
        if (is_variable(value.buffer))
          note_variable_use(op, number, static_cast<int>(i), value, operand.access);
      }
      op.inputs.push_back(operand);
    }
    auto& values = values_[index(node.id)];
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const auto view = std::find_if(node.op->views.begin(), node.op->views.end(),
                                     [&](const auto& pair) { return index(pair.first) == o; });
      Value value;
      if (view != node.op->views.end()) {
        value = value_of(node.inputs[index(view->second)]);
        op.outputs.push_back({value.buffer, Access::None, -1});
      } else {
        // What is brought from elsewhere must not wait for the step before to leave its memory.
        const bool brought = node.op->lane == Lane::Pull ||
                             (node.op->lane == Lane::HostToDevice && !node.attrs.get(kInArena, false));
        const BufferKind kind = brought ? BufferKind::Slot : BufferKind::Arena;
        value = {add_buffer(kind, bytes_of(node, node.outputs[o]), -1, output_domain(node)), number, kNoNode};
        op.outputs.push_back({value.buffer, Access::Write, -1});
      }
      if (values[o].buffer < 0) values[o] = value;
    }
    after_[index(node.id)] = {add_op(std::move(op))};
  }

  /// The side on which a node's results lie.
  Domain output_domain(const Node& node) const {
    return node.op->lane == Lane::DeviceToHost ? Domain::Host : plan_.domain_of(node.id);
  }

  int add_op(ProgramOp op) {
    plan_.program.ops.push_back(std::move(op));
    return plan_.ops() - 1;
  }

  Access access_of(const Node& node, std::size_t input, const Value& value) const {
    if (!is_variable(value.buffer) || graph_.info(node.inputs[input]).dtype != DType::Resource)
      return Access::Read;
    return handle_access(*node.op, input);
  }

  void note_variable_use(ProgramOp& op, int number, int input, const Value& value, Access access) {
    if (access == Access::Write || access == Access::ReadWrite) op.writes_variable = true;
    if (access != Access::Read) return;
    VariableRead read{number, input, value.read, {}};
    if (value.read != kNoNode) read.after = after_[index(value.read)];
    plan_.reads.push_back(std::move(read));
  }

  std::vector<int> dependencies(const Node& node) const {
    std::vector<int> deps;
    const auto add = [&](NodeId id) {
      const auto& after = after_[index(id)];
      deps.insert(deps.end(), after.begin(), after.end());
    };
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!uses_shape_only(node, i) && plan_.feed_of(node.inputs[i]) < 0) add(node.inputs[i].node);
    for (const NodeId control : node.control_inputs) add(control);
    std::sort(deps.begin(), deps.end());
    deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
    return deps;
  }

  /// A value's memory; constants get theirs at their first use.
  Value value_of(ValueRef ref) {
    std::vector<Value>& outputs = values_[index(ref.node)];
    if (index(ref.output) >= outputs.size())
      throw Internal(place_of(graph_.node(ref.node)) + ": is read, but no pass has left it in the graph");
    Value& value = outputs[index(ref.output)];
    if (value.buffer < 0) {
      const Tensor* known = graph_.known_value(ref);
      if (!known) throw Internal(place_of(graph_.node(ref.node)) + ": used before it was lowered");
      plan_.program.constants.push_back(*known);
      value.buffer = add_buffer(BufferKind::Constant, known->bytes(),
                                static_cast<int>(plan_.program.constants.size()) - 1);
    }
    return value;
  }

  bool is_variable(int buffer) const {
    return buffer >= 0 && plan_.buffer(buffer).kind == BufferKind::Variable;
  }

  int variable_buffer(const Node& node) {
    const VariableInfo info = variable_of(graph_, {node.id, 0});
    auto& variables = plan_.program.variables;
    const auto same = std::find_if(variables.begin(), variables.end(),
                                   [&](const ProgramVariable& v) { return v.name == info.name; });
    if (same != variables.end()) {
      if (same->dtype != info.dtype || same->shape != info.shape)
        throw InvalidArgument(place_of(node) + ": variable '" + info.name +
                              "' exists with another type or shape");
      return same->buffer;
    }
    const std::uint64_t bytes = static_cast<std::uint64_t>(info.shape.elements()) * dtype_size(info.dtype);
    const int buffer =
        add_buffer(BufferKind::Variable, bytes, static_cast<int>(variables.size()), plan_.domain_of(node.id));
    variables.push_back({info.name, info.dtype, info.shape, buffer,
                         node.attrs.get<std::vector<std::string>>(kSlabMembers, {})});
    return buffer;
  }

  /// Computed values are written straight into a slot of the step; a variable's is copied there.
  void add_fetch(const std::string& name, ValueRef ref) {
    const OutputInfo& info = graph_.info(ref);
    if (info.dtype == DType::Resource)
      throw InvalidArgument("fetch '" + name + "' is a variable's handle, not a value");
    const Value value = value_of(ref);
    int buffer = value.buffer;
    if (plan_.buffer(buffer).kind == BufferKind::Arena) plan_.buffer(buffer).kind = BufferKind::Slot;
    if (is_variable(buffer)) buffer = add_copy("fetch/" + name, ref, value, BufferKind::Slot);
    plan_.program.fetches.push_back({name, info.dtype, info.shape, buffer});
  }

  int add_copy(const std::string& name, ValueRef ref, const Value& value, BufferKind kind) {
    ProgramOp op;
    op.kind = OpKind::Copy;
    op.node = ref.node;
    op.name = name;
    op.op = "braid.Copy";
    op.deps = after_[index(ref.node)];
    op.domain = plan_.buffer(value.buffer).domain;
    op.inputs.push_back({value.buffer, Access::Read, -1});
    const int copy = add_buffer(kind, plan_.buffer(value.buffer).bytes, -1, op.domain);
    op.outputs.push_back({copy, Access::Write, -1});
    note_variable_use(op, plan_.ops(), 0, value, Access::Read);
    add_op(std::move(op));
    return copy;
  }

  Plan& plan_;
  const Graph& graph_;
  std::vector<std::vector<Value>> values_;  // by node and output
  std::vector<std::vector<int>> after_;     // by node: the ops that are complete when it is done
  std::vector<int> users_;
};

}  // namespace

void lower(Plan& plan) { Lowering(plan).run(); }

}  // namespace braid
