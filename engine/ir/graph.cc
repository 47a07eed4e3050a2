#include "engine/ir/graph.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "engine/ir/topology.h"

namespace braid {

namespace {

[[noreturn]] void fail(const Node& node, const std::string& message) {
  throw InvalidArgument("[" + (node.op ? node.op->name : std::string("?")) + "] node '" + node.name +
                        "': " + message);
}

void check_input_count(const Node& node) {
  const int count = static_cast<int>(node.inputs.size());
  const OpDef& op = *node.op;
  if (count >= op.min_inputs && (op.max_inputs < 0 || count <= op.max_inputs)) return;
  std::string expected = std::to_string(op.min_inputs);
  if (op.max_inputs < 0) {
    expected = "at least " + expected;
  } else if (op.max_inputs != op.min_inputs) {
    expected += " to " + std::to_string(op.max_inputs);
  }
  fail(node, "expected " + expected + " inputs, got " + std::to_string(count));
}

std::string outputs_text(int count) { return std::to_string(count) + (count == 1 ? " output" : " outputs"); }

// "base_7" -> ("base", 7); 0 when the text has no such ending.
std::pair<std::string_view, std::int64_t> split_suffix(std::string_view name) {
  const std::size_t at = name.rfind('_');
  if (at == std::string_view::npos || at + 1 == name.size() || name[at + 1] == '0') return {name, 0};
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + at + 1, name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number <= 0) return {name, 0};
  return {name.substr(0, at), number};
}

}  // namespace

NodeId Graph::add(Node node) {
  if (!node.op) fail(node, "has no op");
  if (node.name.empty()) fail(node, "has no name");
  if (by_name_.contains(node.name)) fail(node, "another node has this name");
  check_input_count(node);
  const auto is_node = [this](NodeId id) { return id >= 0 && id < size() && !this->node(id).removed; };
  for (const ValueRef input : node.inputs) {
    if (!is_node(input.node)) fail(node, "an input is not a node of the graph");
    const auto outputs = static_cast<int>(this->node(input.node).outputs.size());
    if (input.output < 0 || input.output >= outputs) {
      fail(node, "input '" + value_name(input) + "' does not exist: '" + this->node(input.node).name +
                     "' has " + outputs_text(outputs));
    }
  }
  for (const NodeId control : node.control_inputs) {
    if (!is_node(control)) fail(node, "a control input is not a node of the graph");
  }

  const NodeId id = static_cast<NodeId>(nodes_.size());
  node.id = id;
  nodes_.push_back(std::move(node));
  try {
    infer_node(*this, id);
  } catch (...) {
    nodes_.pop_back();
    throw;
  }
  const std::string& name = nodes_.back().name;
  by_name_.emplace(name, id);
  if (const auto [base, number] = split_suffix(name); number > 0) {
    auto [it, fresh] = next_suffix_.emplace(base, 1);
    if (it->second == number) ++it->second;
  }
  return id;
}

NodeId Graph::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? kNoNode : it->second;
}

std::string Graph::unique_name(std::string_view base) const {
  if (!by_name_.contains(base)) return std::string(base);
  const auto start = next_suffix_.find(base);
  for (std::int64_t number = start == next_suffix_.end() ? 1 : start->second;; ++number) {
    std::string name = std::string(base) + "_" + std::to_string(number);
    if (!by_name_.contains(name)) return name;
  }
}

const Tensor* Graph::known_value(ValueRef value) const {
  const auto& known = node(value.node).known_values;
  const auto output = static_cast<std::size_t>(value.output);
  return output < known.size() && known[output].defined() ? &known[output] : nullptr;
}

std::string Graph::value_name(ValueRef value) const {
  const std::string& name = node(value.node).name;
  return value.output == 0 ? name : name + ":" + std::to_string(value.output);
}

ValueRef Graph::parse_value(std::string_view text) const {
  const bool control = text.starts_with('^');
  std::string_view name = control ? text.substr(1) : text;
  int output = control ? -1 : 0;
  const std::size_t colon = name.rfind(':');
  if (!control && colon != std::string_view::npos) {
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + colon + 1, end, output);
    if (error != std::errc() || stop != end || output < 0) {
      throw InvalidArgument("'" + std::string(text) +
                            "' does not name a value: expected 'node' or 'node:output'");
    }
    name = name.substr(0, colon);
  }
  const NodeId id = find(name);
  if (id == kNoNode) throw InvalidArgument("there is no node '" + std::string(name) + "'");
  const auto outputs = static_cast<int>(node(id).outputs.size());
  if (output >= outputs) {
    throw InvalidArgument("there is no value '" + std::string(text) + "': [" + node(id).op->name +
                          "] node '" + std::string(name) + "' has " + outputs_text(outputs));
  }
  return {id, output};
}

void Graph::replace_uses(ValueRef from, ValueRef to) { replace_uses({{from, to}}); }

void Graph::replace_uses(const std::map<ValueRef, ValueRef>& replacements) {
  for (Node& user : nodes_) {
    if (user.removed) continue;
    for (ValueRef& input : user.inputs) {
      if (const auto it = replacements.find(input); it != replacements.end()) input = it->second;
    }
  }
}

void Graph::remove(NodeId id) {
  Node& node = mutable_node(id);
  node.removed = true;
  by_name_.erase(node.name);
}

std::vector<NodeId> Graph::topological_order() const {
  TopologicalOrder sorted = sort_topologically(size(), [this](NodeId id, FunctionRef<void(NodeId)> visit) {
    const Node& node = this->node(id);
    if (node.removed) return;
    for (const ValueRef input : node.inputs) visit(input.node);
    for (const NodeId control : node.control_inputs) visit(control);
  });
  if (!sorted.cycle.empty()) {
    std::string names;
    for (const NodeId id : sorted.cycle) names += "'" + node(id).name + "' -> ";
    throw InvalidArgument("the graph has a cycle: " + names + "'" + node(sorted.cycle.front()).name + "'");
  }
  std::erase_if(sorted.order, [this](NodeId id) { return node(id).removed; });
  return std::move(sorted.order);
}

namespace {

VariableInfo info_of_handle(const Node& node) {
  VariableInfo info;
  info.name = node.attrs.get<std::string>("shared_name", "");
  if (info.name.empty()) info.name = node.name;
  info.dtype = node.attrs.require<DType>("dtype");
  info.shape = node.attrs.require<Shape>("shape");
  info.trainable = node.attrs.get<bool>("_trainable", true);
  info.sparse = node.attrs.get<bool>("_sparse", false);
  info.handle = node.id;
  return info;
}

bool is_handle_node(const Node& node) { return !node.removed && node.op->role == OpRole::Variable; }

}  // namespace

std::vector<VariableInfo> list_variables(const Graph& graph) {
  std::vector<VariableInfo> variables;
  std::unordered_map<std::string, std::size_t> by_name;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!is_handle_node(graph.node(id))) continue;
    VariableInfo info = info_of_handle(graph.node(id));
    const auto [it, fresh] = by_name.emplace(info.name, variables.size());
    if (fresh) {
      variables.push_back(std::move(info));
      continue;
    }
    const VariableInfo& first = variables[it->second];
    if (first.dtype != info.dtype || first.shape != info.shape) {
      throw InvalidArgument("variable '" + info.name +
                            "' has two handles of different type or shape: nodes '" +
                            graph.node(first.handle).name + "' and '" + graph.node(id).name + "'");
    }
  }
  return variables;
}

VariableInfo variable_of(const Graph& graph, ValueRef handle) {
  ValueRef at = handle;
  while (graph.info(at).dtype == DType::Resource) {
    const Node& node = graph.node(at.node);
    if (is_handle_node(node)) return info_of_handle(node);
    const auto view = std::find_if(node.op->views.begin(), node.op->views.end(),
                                   [&](const auto& pair) { return pair.first == at.output; });
    if (view == node.op->views.end()) break;
    at = node.inputs[static_cast<std::size_t>(view->second)];
  }
  throw InvalidArgument("'" + graph.value_name(handle) + "' is not the handle of a variable");
}

}  // namespace braid
