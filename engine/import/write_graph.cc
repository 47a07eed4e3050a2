#include "engine/import/write_graph.h"

#include <string>

#include "engine/import/convert.h"
#include "engine/import/pending_graph.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

NodeDef to_node_def(const Graph& graph, const Node& node) {
  NodeDef def;
  def.set_name(node.name);
  def.set_op(node.op->name);
  def.set_device(node.device);
  for (const ValueRef input : node.inputs) def.add_input(graph.value_name(input));
  for (const NodeId control : node.control_inputs)
    if (!graph.node(control).removed) def.add_input("^" + graph.node(control).name);
  for (const auto& [name, value] : node.attrs)
    if (name != "_class") (*def.mutable_attr())[name] = to_proto(value);
  if (node.stream != kNoStream) (*def.mutable_attr())["_stream_id"].set_i(node.stream);
  if (!node.include_grad) (*def.mutable_attr())["_include_grad"].set_b(false);
  if (node.colocate_with != kNoNode && !graph.node(node.colocate_with).removed)
    (*def.mutable_attr())["_class"].mutable_list()->add_s(std::string(kColocatePrefix) +
                                                          graph.node(node.colocate_with).name);
  return def;
}

}  // namespace

GraphDef to_graph_def(const Graph& graph) {
  GraphDef def;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!graph.node(id).removed) *def.add_node() = to_node_def(graph, graph.node(id));
  return def;
}

}  // namespace braid
