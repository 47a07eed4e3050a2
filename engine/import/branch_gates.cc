#include "engine/import/branch_gates.h"

namespace braid {
namespace {

void place_like(NodeDef& node, const NodeDef& like) {
  node.set_device(like.device());
  for (const char* name : {"_stream_id", "_include_grad"})
    if (const auto at = like.attr().find(name); at != like.attr().end())
      node.mutable_attr()->insert({name, at->second});
}

}  // namespace

bool has_gradients(DataType type) {
  return type == DT_FLOAT || type == DT_DOUBLE || type == DT_HALF || type == DT_BFLOAT16;
}

bool reads_variable(const NodeDef& node) {
  if (node.op() != "ReadVariableOp" && node.op() != "ResourceGather" && node.op() != "ResourceGatherNd")
    return false;
  const auto type = node.attr().find("dtype");
  return type != node.attr().end() && has_gradients(type->second.type());
}

void add_gate(GraphDef& graph, const std::string& name, const std::string& value,
              const std::string& condition, bool when, const NodeDef& like) {
  NodeDef without, gate;
  without.set_name(name + "/no_gradient");
  without.set_op("StopGradient");
  without.add_input(value);
  gate.set_name(name);
  gate.set_op("Select");
  gate.add_input(condition);
  gate.add_input(when ? value : without.name());
  gate.add_input(when ? without.name() : value);
  place_like(without, like);
  place_like(gate, like);
  *graph.add_node() = std::move(without);
  *graph.add_node() = std::move(gate);
}

void add_comparison(GraphDef& graph, const std::string& name, const std::string& value, int number) {
  NodeDef constant, equal;
  constant.set_name(name + "/number");
  constant.set_op("Const");
  (*constant.mutable_attr())["dtype"].set_type(DT_INT32);
  TensorProto& tensor = *(*constant.mutable_attr())["value"].mutable_tensor();
  tensor.set_dtype(DT_INT32);
  tensor.mutable_tensor_shape();
  tensor.add_int_val(number);
  equal.set_name(name);
  equal.set_op("Equal");
  (*equal.mutable_attr())["T"].set_type(DT_INT32);
  equal.add_input(value);
  equal.add_input(constant.name());
  *graph.add_node() = std::move(constant);
  *graph.add_node() = std::move(equal);
}

void gate_reads(GraphDef& graph, int first, const std::string& condition, bool when) {
  const int end = graph.node_size();
  for (int i = first; i < end; ++i) {
    if (!reads_variable(graph.node(i))) continue;
    const std::string name = graph.node(i).name();
    const NodeDef like = graph.node(i);
    graph.mutable_node(i)->set_name(name + "/read");
    add_gate(graph, name, name + "/read", condition, when, like);
  }
}

}  // namespace braid
