#include "engine/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "engine/import/inline_functions.h"
#include "engine/import/pending_graph.h"
#include "engine/import/widen.h"
#include "engine/ops/op.h"
#include "proto/graph.pb.h"

namespace braid {

namespace {

std::string place_of(std::string_view op, std::string_view node) {
  return fmt::format("[{}] node '{}'", op, node);
}

void report_cycle(PendingGraph& graph, const std::vector<std::int32_t>& cycle) {
  if (cycle.empty()) return;
  std::string names;
  for (const std::int32_t index : cycle)
    names += "'" + graph.nodes[static_cast<std::size_t>(index)].name + "' -> ";
  PendingNode& first = graph.nodes[static_cast<std::size_t>(cycle.front())];
  first.add_problem("is on a cycle: " + names + "'" + first.name + "'");
}

/// A GatherV2 with batch axes is another op here.
void name_batch_gathers(PendingNode& node) {
  const Attr* batch_dims = node.op == "GatherV2" ? node.attrs.find("batch_dims") : nullptr;
  const auto* value =
      batch_dims ? std::get_if<std::int64_t>(static_cast<const AttrValue_*>(batch_dims)) : nullptr;
  if (value && *value != 0) node.op = "braid.BatchGather";
}

bool is_control_flow(std::string_view op) {
  static constexpr std::string_view kOps[] = {"Switch",
                                              "RefSwitch",
                                              "Merge",
                                              "RefMerge",
                                              "Enter",
                                              "RefEnter",
                                              "Exit",
                                              "RefExit",
                                              "LoopCond",
                                              "NextIteration",
                                              "RefNextIteration",
                                              "If",
                                              "StatelessIf",
                                              "While",
                                              "StatelessWhile",
                                              "Case",
                                              "StatelessCase",
                                              "For",
                                              "ControlTrigger"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// Adds what can be added; `graph` holds the problems of the rest.
class Builder {
 public:
  explicit Builder(PendingGraph& pending) : pending_(pending), ids_(pending.nodes.size(), kNoNode) {}

  Graph build(const std::vector<std::int32_t>& order) {
    for (const std::int32_t index : order) add(index);
    for (const std::int32_t index : order) colocate(index);
    return std::move(graph_);
  }

 private:
  NodeId id(int index) const { return ids_[static_cast<std::size_t>(index)]; }

  void add(int index) {
    PendingNode& pending = pending_.nodes[static_cast<std::size_t>(index)];
    const OpDef* op = OpRegistry::global().find(pending.op);
    if (!op || !pending.problem.empty()) return;
    Node node;
    node.name = pending.name;
    node.op = op;
    node.attrs = std::move(pending.attrs);
    node.device = pending.device;
    node.stream = pending.stream;
    node.include_grad = pending.include_grad;
    for (const PendingInput input : pending.inputs) {
      if (id(input.node) == kNoNode) return;
      node.inputs.push_back({id(input.node), input.output});
    }
    for (const int control : pending.controls) {
      if (id(control) == kNoNode) return;
      node.control_inputs.push_back(id(control));
    }
    std::sort(node.control_inputs.begin(), node.control_inputs.end());
    node.control_inputs.erase(std::unique(node.control_inputs.begin(), node.control_inputs.end()),
                              node.control_inputs.end());
    try {
      ids_[static_cast<std::size_t>(index)] = place(std::move(node));
    } catch (const InvalidArgument& error) {
      const std::string prefix = place_of(pending.op, pending.name) + ": ";
      const std::string& message = error.message();
      pending.add_problem(message.starts_with(prefix) ? message.substr(prefix.size()) : message);
    }
  }

  /// Adds the node, with Casts around it where its op has no kernel for its inputs' type.
  NodeId place(Node node) {
    bool small = false, half = false;
    for (const ValueRef input : node.inputs) {
      if (static_cast<std::size_t>(input.output) >= graph_.node(input.node).outputs.size()) continue;
      const DType dtype = graph_.info(input).dtype;
      small = small || wide_type(dtype);
      half = half || dtype == DType::Float16 || dtype == DType::BFloat16;
    }
    if (!small || moves_elements(node.op->name)) return graph_.add(std::move(node));
    if (half) return place_widened(std::move(node));
    try {
      return graph_.add(node);
    } catch (const InvalidArgument&) {
      return place_widened(std::move(node));
    }
  }

  NodeId place_widened(Node node) {
    const std::string name = node.name;
    DType narrow = DType::Invalid;
    for (ValueRef& input : node.inputs) {
      const DType dtype = graph_.info(input).dtype;
      const std::optional<DType> wide = wide_type(dtype);
      if (!wide) continue;
      narrow = dtype;
      input = {add_cast(node, graph_.unique_name(name + "/widen"), input, *wide), 0};
    }
    node.name = graph_.unique_name(name + "/wide");
    const Node beside = node;  // of whose stream and device the Casts are
    const NodeId wide = graph_.add(std::move(node));
    const int outputs = static_cast<int>(graph_.node(wide).outputs.size());
    std::vector<ValueRef> results;
    for (int o = 0; o < outputs; ++o) {
      const bool narrows =
          has_data_type(beside.op->name, o) && graph_.info({wide, o}).dtype == wide_type(narrow);
      const std::string cast_name = outputs == 1 ? name : graph_.unique_name(name + "/narrow");
      results.push_back(narrows ? ValueRef{add_cast(beside, cast_name, {wide, o}, narrow), 0}
                                : ValueRef{wide, o});
    }
    if (outputs == 1 && results[0].node != wide) return results[0].node;
    return add_beside(beside, name,
                      outputs == 1   ? "Identity"
                      : outputs == 0 ? "NoOp"
                                     : "IdentityN",
                      results, {}, wide);
  }

  NodeId add_cast(const Node& beside, const std::string& name, ValueRef input, DType to) {
    return add_beside(beside, name, "Cast", {input}, {{"SrcT", graph_.info(input).dtype}, {"DstT", to}},
                      kNoNode);
  }

  NodeId add_beside(const Node& beside, const std::string& name, const char* op, std::vector<ValueRef> inputs,
                    AttrMap attrs, NodeId after) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require(op);
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    if (after != kNoNode && node.inputs.empty()) node.control_inputs = {after};
    node.device = beside.device;
    node.stream = beside.stream;
    node.include_grad = beside.include_grad;
    return graph_.add(std::move(node));
  }

  void colocate(int index) {
    const PendingNode& pending = pending_.nodes[static_cast<std::size_t>(index)];
    if (pending.colocate_with.empty() || pending.colocate_with == pending.name || id(index) == kNoNode)
      return;
    const NodeId target = graph_.find(pending.colocate_with);
    if (target == kNoNode) {
      // Tools that prune graphs leave such names behind.
      log_warning("node '{}' is colocated with '{}', which is not in the graph", pending.name,
                  pending.colocate_with);
      return;
    }
    graph_.mutable_node(id(index)).colocate_with = target;
  }

  PendingGraph& pending_;
  Graph graph_;
  std::vector<NodeId> ids_;
};

}  // namespace

ImportResult try_import_graph(const GraphDef& graph, const ImportOptions& options) {
  const std::optional<InlinedGraph> inlined = inline_functions(graph);
  PendingGraph pending = parse_nodes(inlined ? inlined->graph : graph, options);
  for (PendingNode& node : pending.nodes) {
    if (!inlined) break;
    if (const auto at = inlined->problems.find(node.name); at != inlined->problems.end())
      node.add_problem(at->second);
  }
  std::vector<std::string> original_ops;
  for (PendingNode& node : pending.nodes) original_ops.push_back(node.op);
  report_cycle(pending, pending.order().cycle);
  for (PendingNode& node : pending.nodes) name_batch_gathers(node);
  lower_reference_variables(pending);

  ImportResult result;
  result.graph = Builder(pending).build(pending.order().order);
  for (std::size_t i = 0; i < pending.nodes.size(); ++i) {
    const PendingNode& node = pending.nodes[i];
    const std::string& op = i < original_ops.size() ? original_ops[i] : node.op;
    std::string reason = node.problem;
    if (!OpRegistry::global().find(node.op) && reason.empty()) {
      reason = is_control_flow(op) ? "control flow is not supported"
               : op == node.op     ? "the op is not supported"
                                   : "the op needs " + node.op + ", which is not supported";
    }
    if (!reason.empty()) result.problems.push_back({node.name, op, std::move(reason)});
  }
  return result;
}

Graph import_graph(const GraphDef& graph, std::string_view source, const ImportOptions& options) {
  ImportResult result = try_import_graph(graph, options);
  if (result.problems.empty()) return std::move(result.graph);
  std::string text =
      fmt::format("{}: {} of {} nodes cannot be loaded:", source, result.problems.size(), graph.node_size());
  for (const ImportProblem& problem : result.problems) {
    text += "\n  " + place_of(problem.op, problem.node) + ": " + problem.reason;
  }
  throw InvalidArgument(std::move(text));
}

}  // namespace braid
