#include "worker/model/tables.h"

#include <algorithm>
#include <map>
#include <vector>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

bool gathers_rows(const Graph& graph, const Node& node) {
  if (node.op->name == "Gather") return true;
  if (node.op->name != "GatherV2" || node.attrs.get<std::int64_t>("batch_dims", 0) != 0) return false;
  const Tensor* axis = graph.known_value(node.inputs[2]);
  return axis && axis->elements() == 1 && tensor_to_int64s(*axis)[0] == 0;
}

/// The handle whose value, as it is when a step begins, that is.
ValueRef handle_read_by(const Graph& graph, ValueRef value) {
  while (graph.node(value.node).op->name == "Identity") value = graph.node(value.node).inputs[0];
  const Node& read = graph.node(value.node);
  if (read.op->name != "ReadVariableOp" || !read.control_inputs.empty()) return {};
  return read.inputs[0];
}

ValueRef as_int64(Graph& graph, ValueRef ids, const Node& beside) {
  const DType dtype = graph.info(ids).dtype;
  if (dtype == DType::Int64) return ids;
  Node cast;
  cast.name = graph.unique_name(beside.name + "/ids");
  cast.op = &OpRegistry::global().require("Cast");
  cast.attrs = {{"SrcT", dtype}, {"DstT", DType::Int64}};
  cast.inputs = {ids};
  cast.device = beside.device;
  cast.stream = beside.stream;
  return {graph.add(std::move(cast)), 0};
}

void replace_node(Graph& graph, NodeId old_id, Node node) {
  graph.remove(old_id);
  const NodeId id = graph.add(std::move(node));
  graph.replace_uses({old_id, 0}, {id, 0});
  for (NodeId other = 0; other < graph.size(); ++other) {
    Node& user = graph.mutable_node(other);
    std::replace(user.control_inputs.begin(), user.control_inputs.end(), old_id, id);
    if (user.colocate_with == old_id) user.colocate_with = id;
  }
}

void gather_from(Graph& graph, NodeId id, ValueRef handle) {
  Node node = graph.node(id);
  const VariableInfo variable = variable_of(graph, handle);
  const ValueRef ids = as_int64(graph, node.inputs[1], node);
  node.id = kNoNode;
  node.op = &OpRegistry::global().require("ResourceGather");
  node.attrs = {{"dtype", variable.dtype}, {"Tindices", DType::Int64}};
  node.inputs = {handle, ids};
  node.outputs.clear();
  node.known_values.clear();
  replace_node(graph, id, std::move(node));
}

}  // namespace

void gather_from_variables(Graph& graph) {
  const int nodes = graph.size();
  for (NodeId id = 0; id < nodes; ++id) {
    if (graph.node(id).removed) continue;
    if (graph.node(id).op->name == "ResourceGather") {
      const ValueRef ids = as_int64(graph, graph.node(id).inputs[1], graph.node(id));
      Node& node = graph.mutable_node(id);
      node.inputs[1] = ids;
      node.attrs.set("Tindices", DType::Int64);
    } else if (gathers_rows(graph, graph.node(id))) {
      const ValueRef handle = handle_read_by(graph, graph.node(id).inputs[0]);
      if (handle.valid()) gather_from(graph, id, handle);
    }
  }
}

void remove_unused(Graph& graph, const std::set<std::string>& roots) {
  std::vector<char> used(static_cast<std::size_t>(graph.size()));
  std::vector<NodeId> open;
  const auto use = [&](NodeId id) {
    if (used[static_cast<std::size_t>(id)]) return;
    used[static_cast<std::size_t>(id)] = 1;
    open.push_back(id);
  };
  for (const std::string& root : roots)
    if (const NodeId id = graph.find(root); id != kNoNode) use(id);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (const ValueRef input : graph.node(id).inputs) use(input.node);
    for (const NodeId control : graph.node(id).control_inputs) use(control);
  }
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!used[static_cast<std::size_t>(id)] && !graph.node(id).removed) graph.remove(id);
}

std::set<std::string> find_tables(const Graph& graph) {
  std::map<std::string, bool> only_rows;   // by variable: of those with a use
  std::map<ValueRef, std::string> values;  // handles and what reads make of them -> variable
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    if (node.op->name == "VarHandleOp") {
      const VariableInfo variable = variable_of(graph, {id, 0});
      const bool can = variable.dtype == DType::Float32 && variable.shape.rank() == 2;
      only_rows.try_emplace(variable.name, can);
      values[{id, 0}] = variable.name;
      continue;
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto at = values.find(node.inputs[i]);
      if (at == values.end()) continue;
      const std::string name = at->second;
      if (node.op->name == "ReadVariableOp" || node.op->name == "Identity")
        values[{id, 0}] = name;
      else if (!(node.op->name == "ResourceGather" && i == 0) && !reads_shape_only(node, i))
        only_rows[name] = false;
    }
  }
  std::set<std::string> tables;
  for (const auto& [name, only] : only_rows)
    if (only) tables.insert(name);
  return tables;
}

}  // namespace braid::worker
