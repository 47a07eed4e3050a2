// Which nodes run on the device, and the copies where values cross.
//
// A program of the host runs everything there. In a program of the device a node runs on the device when its
// op has a kernel for it that does these types, unless the node asks for a CPU; soft placement: what cannot
// runs on the host, with a note, else it is refused. The same holds for nodes that ask for another process
// ("/job:ps/task:0") or a second device ("/gpu:1"): a program is of one process with one device, so they run
// here, with a warning for each such name, or are refused. A variable lives where all ops that take its
// handle can run, so one that a host op takes is the host's, with all its users. Feeds and constants exist on
// both sides. Every other value that is used on the other side gets one copy node there, which runs on the
// stream of its direction.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/graph/passes.h"
#include "engine/ir/device_name.h"
#include "engine/ir/offload_attrs.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

/// The kind of device that the node asks for, or nothing.
std::string asked_kind(const Node& node) {
  return node.device.empty() ? "" : parse_device_name(node.device).kind.value_or("");
}

/// Counts of nodes by reason, with the first of each.
class Notes {
 public:
  void add(const std::string& reason, const std::string& node) {
    Entry& entry = entries_[reason];
    if (entry.nodes++ == 0) entry.first = node;
  }
  void write(Plan& plan) const {
    for (const auto& [reason, entry] : entries_)
      plan.note(std::to_string(entry.nodes) + " node" + (entry.nodes == 1 ? "" : "s") +
                " on the CPU: " + reason + " (first: '" + entry.first + "')");
  }

 private:
  struct Entry {
    int nodes = 0;
    std::string first;
  };
  std::map<std::string, Entry> entries_;
};

/// Why the program has no such device, whatever its kind; empty: it may have it. The process is
/// "/job:worker/task:0", or localhost, whichever of the job's it is: all run the same graph.
std::string why_not_here(const DeviceName& name) {
  const bool is_own_job = !name.job || *name.job == "localhost" || *name.job == "worker";
  if (!is_own_job || name.replica.value_or(0) != 0 || name.task.value_or(0) != 0)
    return "which is another process";
  if (name.index.value_or(0) != 0)
    return "but a process has one " + name.kind.value_or("device") + ", number 0";
  return {};
}

/// Nodes that ask for what is not here, a line for each device's name.
class Elsewhere {
 public:
  void add(const Node& node) {
    if (node.device.empty()) return;
    Entry& entry = entries_[node.device];
    if (entry.nodes == 0) {
      entry.why = why_not_here(parse_device_name(node.device));
      entry.first = place_of(node);
    }
    ++entry.nodes;
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& [device, entry] : entries_)
      if (!entry.why.empty())
        lines.push_back(std::to_string(entry.nodes) + (entry.nodes == 1 ? " node asks" : " nodes ask") +
                        " for '" + device + "', " + entry.why + " (first: " + entry.first + ")");
    return lines;
  }

 private:
  struct Entry {
    int nodes = 0;
    std::string why, first;
  };
  std::map<std::string, Entry> entries_;
};

class Placement {
 public:
  explicit Placement(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    plan_.domains.assign(static_cast<std::size_t>(graph_.size()), plan_.options.domain);
    order_ = graph_.topological_order();
    tell_elsewhere();
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      if (plan_.options.domain == Domain::Host) {
        const std::string kind = asked_kind(node);
        if (!kind.empty() && kind != "CPU")
          settle(node, "they ask for '" + node.device + "', which this program does not have");
      } else if (runs(node)) {
        const std::string reason = why_not_on_device(node);
        if (!reason.empty()) put_on_host(node, reason);
      }
    }
    refuse_misplaced();
    if (plan_.options.domain == Domain::Device) {
      place_variables();
      refuse_misplaced();
      add_copies();
    }
    notes_.write(plan_);
  }

 private:
  Domain& domain(NodeId id) { return plan_.domains[static_cast<std::size_t>(id)]; }

  void tell_elsewhere() {
    Elsewhere elsewhere;
    for (const NodeId id : order_) elsewhere.add(graph_.node(id));
    for (const std::string& line : elsewhere.lines()) {
      plan_.note(Severity::Warning, line + ": they run here");
      misplaced_ += "\n  " + line;
    }
    if (plan_.options.soft_placement) misplaced_.clear();
  }

  void put_on_host(const Node& node, const std::string& reason) {
    domain(node.id) = Domain::Host;
    settle(node, reason);
  }

  /// The host is where the node runs, whatever it asks for.
  void settle(const Node& node, const std::string& reason) {
    notes_.add(reason, node.name);
    const std::string kind = asked_kind(node);
    if (!plan_.options.soft_placement && !kind.empty() && kind != "CPU")
      misplaced_ += "\n  " + place_of(node) + " asks for '" + node.device +
                    "': " + (plan_.options.domain == Domain::Host ? "this program does not have it" : reason);
  }

  void refuse_misplaced() const {
    if (!misplaced_.empty())
      throw InvalidArgument("soft placement is off, and nodes cannot run where they ask to:" + misplaced_);
  }

  static bool is_view(const Node& node) {
    return !node.op->views.empty() && node.op->views.size() == node.outputs.size();
  }

  bool is_known(const Node& node) const {
    if (node.outputs.empty()) return false;
    for (int output = 0; output < static_cast<int>(node.outputs.size()); ++output)
      if (!graph_.known_value({node.id, output})) return false;
    return true;
  }

  /// Whether lowering will make an op of the node.
  bool runs(const Node& node) const {
    return !plan_.is_fed(node) && !is_known(node) && !is_view(node) && node.op->role != OpRole::Variable &&
           node.op->role != OpRole::Nothing;
  }

  std::string why_not_on_device(const Node& node) const {
    if (asked_kind(node) == "CPU") return "they ask for '" + node.device + "'";
    if (!node.op->cuda) return "op " + node.op->name + " has no CUDA kernel";
    std::vector<OutputInfo> inputs;
    for (const ValueRef input : node.inputs) {
      inputs.push_back(graph_.info(input));
      if (inputs.back().dtype == DType::Resource) inputs.back().dtype = variable_of(graph_, input).dtype;
    }
    for (const OutputInfo& info : inputs)
      if (info.dtype == DType::String) return "op " + node.op->name + " with strings";
    if (node.op->cuda_supports && !node.op->cuda_supports(node, inputs))
      return "op " + node.op->name + " has no CUDA kernel for " +
             std::string(dtype_name(inputs.empty() ? node.outputs[0].dtype : inputs[0].dtype)) +
             " or this shape";
    return {};
  }

  /// The handle's node behind views, or none when the value is no handle.
  NodeId handle_of(ValueRef value) const {
    while (graph_.node(value.node).op->role != OpRole::Variable) {
      const Node& node = graph_.node(value.node);
      const auto view = std::find_if(node.op->views.begin(), node.op->views.end(),
                                     [&](const auto& pair) { return pair.first == value.output; });
      if (view == node.op->views.end()) return kNoNode;
      value = node.inputs[static_cast<std::size_t>(view->second)];
    }
    return value.node;
  }

  /// Until nothing changes: a variable with a user on the host, or whose handle asks for a CPU, is the
  /// host's, and so are its users.
  void place_variables() {
    std::map<std::string, Domain> variables;
    const auto of = [&](NodeId handle) -> Domain& {
      return variables.try_emplace(variable_of(graph_, {handle, 0}).name, Domain::Device).first->second;
    };
    for (const NodeId id : order_)
      if (graph_.node(id).op->role == OpRole::Variable &&
          (asked_kind(graph_.node(id)) == "CPU" || graph_.node(id).attrs.get(kOnHost, false)))
        of(id) = Domain::Host;
    for (bool changed = true; changed;) {
      changed = false;
      for (const NodeId id : order_) {
        const Node& node = graph_.node(id);
        if (!runs(node)) continue;
        for (const ValueRef input : node.inputs) {
          if (graph_.info(input).dtype != DType::Resource) continue;
          const NodeId handle = handle_of(input);
          if (handle == kNoNode || graph_.node(handle).attrs.get(kOnHost, false)) continue;
          Domain& variable = of(handle);
          if (variable == domain(id)) continue;
          if (domain(id) == Domain::Device)
            put_on_host(node,
                        "variable '" + variable_of(graph_, {handle, 0}).name + "' is used by an op there");
          variable = Domain::Host;
          changed = true;
        }
      }
    }
    for (const NodeId id : order_)
      if (graph_.node(id).op->role == OpRole::Variable) domain(id) = of(id);
  }

  /// Where a value lies; nothing for what exists on both sides.
  std::optional<Domain> side_of(ValueRef value) {
    for (;;) {
      if (plan_.feed_of(value) >= 0 || graph_.known_value(value)) return std::nullopt;
      const Node& node = graph_.node(value.node);
      const auto view = std::find_if(node.op->views.begin(), node.op->views.end(),
                                     [&](const auto& pair) { return pair.first == value.output; });
      if (view == node.op->views.end()) return domain(value.node);
      value = node.inputs[static_cast<std::size_t>(view->second)];
    }
  }

  void add_copies() {
    std::map<std::pair<ValueRef, Domain>, ValueRef> copies;
    for (const NodeId id : order_) {
      if (!runs(graph_.node(id))) continue;
      const std::size_t inputs = graph_.node(id).inputs.size();
      for (std::size_t i = 0; i < inputs; ++i) {
        const ValueRef input = graph_.node(id).inputs[i];
        if (graph_.info(input).dtype == DType::Resource || uses_shape_only(graph_.node(id), i)) continue;
        const std::optional<Domain> side = side_of(input);
        const Domain wanted = domain(id);
        if (!side || *side == wanted) continue;
        auto [copy, is_new] = copies.try_emplace({input, wanted});
        if (is_new) copy->second = add_copy(input, wanted);
        graph_.mutable_node(id).inputs[i] = copy->second;
      }
    }
    if (!copies.empty())
      plan_.note(std::to_string(copies.size()) + " values are copied between host and device in each step");
  }

  ValueRef add_copy(ValueRef value, Domain to) {
    const bool down = to == Domain::Host;
    Node node;
    node.op = &OpRegistry::global().require(down ? "braid.DeviceToHost" : "braid.HostToDevice");
    node.name = graph_.unique_name(graph_.value_name(value) + (down ? "/d2h" : "/h2d"));
    node.inputs = {value};
    const NodeId id = graph_.add(std::move(node));
    plan_.domains.push_back(Domain::Device);  // both directions are work of the device's streams
    return {id, 0};
  }

  Plan& plan_;
  Graph& graph_;
  std::vector<NodeId> order_;
  Notes notes_;
  std::string misplaced_;  // nodes that soft placement would put elsewhere than they ask
};

}  // namespace

void place(Plan& plan) { Placement(plan).run(); }

}  // namespace braid
