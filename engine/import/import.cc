#include "engine/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "engine/import/colocate.h"
#include "engine/import/inline_functions.h"
#include "engine/import/lower_tables.h"
#include "engine/import/op_forms.h"
#include "engine/import/pending_graph.h"
#include "engine/import/place.h"
#include "engine/ir/left_out.h"
#include "engine/ir/op.h"
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
    for (const std::int32_t index : order) {
      add(index);
      origin_.resize(static_cast<std::size_t>(graph_.size()), index);
    }
    link_colocated(pending_, origin_, graph_);
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
      ids_[static_cast<std::size_t>(index)] = place_node(graph_, std::move(node));
    } catch (const InvalidArgument& error) {
      const std::string prefix = place_of(pending.op, pending.name) + ": ";
      const std::string& message = error.message();
      pending.add_problem(message.starts_with(prefix) ? message.substr(prefix.size()) : message);
    }
  }

  PendingGraph& pending_;
  Graph graph_;
  std::vector<NodeId> ids_;
  std::vector<int> origin_;  // by node of graph_: whose it is, in pending_
};

}  // namespace

ImportResult try_import_graph(const GraphDef& graph, const ImportOptions& options) {
  const std::optional<InlinedGraph> inlined = inline_functions(graph);
  const GraphDef& flat = inlined ? inlined->graph : graph;
  const std::optional<LoweredTables> tables = lower_tables(flat);
  PendingGraph pending = parse_nodes(tables ? tables->graph : flat, options);
  const auto take_problems = [&](const std::map<std::string, std::string>& problems) {
    for (PendingNode& node : pending.nodes)
      if (const auto at = problems.find(node.name); at != problems.end()) node.add_problem(at->second);
  };
  if (inlined) take_problems(inlined->problems);
  if (tables) take_problems(tables->problems);
  std::vector<std::string> original_ops;
  for (PendingNode& node : pending.nodes) original_ops.push_back(node.op);
  report_cycle(pending, pending.order().cycle);
  rename_forms(pending);
  lower_reference_variables(pending);

  ImportResult result;
  result.graph = Builder(pending).build(pending.order().order);
  for (std::size_t i = 0; i < pending.nodes.size(); ++i) {
    const PendingNode& node = pending.nodes[i];
    const std::string& op = i < original_ops.size() ? original_ops[i] : node.op;
    std::string reason = node.problem;
    const bool is_known = OpRegistry::global().find(node.op) != nullptr;
    if (!is_known && is_control_flow(op)) {
      reason = "control flow is not supported";
    } else if (!is_known && op.starts_with("TensorList") && reason.empty()) {
      reason = "lists are taken in loops whose number of turns follows from the graph";
    } else if (!is_known && reason.empty()) {
      reason = fmt::format("the op {} supported{}",
                           op == node.op ? "is not" : "needs " + node.op + ", which is not", left_out_text());
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
