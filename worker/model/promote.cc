#include "worker/model/promote.h"

#include "engine/ir/op.h"

namespace braid::worker {

std::map<std::string, Tensor> promote_constants(Graph& graph,
                                                const std::function<bool(const std::string&)>& chosen) {
  std::map<std::string, Tensor> values;
  const int nodes = graph.size();
  for (NodeId id = 0; id < nodes; ++id) {
    const Node& constant = graph.node(id);
    if (constant.removed || constant.op->name != "Const" || !chosen(constant.name)) continue;
    const Tensor value = constant.attrs.require<Tensor>("value");
    if (!is_floating(value.dtype())) continue;
    Node handle;
    handle.name = graph.unique_name(constant.name + "/handle");
    handle.op = &OpRegistry::global().require("VarHandleOp");
    handle.attrs = {{"dtype", value.dtype()}, {"shape", value.shape()}, {"shared_name", constant.name}};
    Node read = constant;
    read.id = kNoNode;
    read.op = &OpRegistry::global().require("ReadVariableOp");
    read.attrs = {{"dtype", value.dtype()}};
    read.outputs.clear();
    read.known_values.clear();
    values.emplace(read.name, value);
    graph.remove(id);
    read.inputs = {{graph.add(std::move(handle)), 0}};
    graph.replace_uses({id, 0}, {graph.add(std::move(read)), 0});
  }
  return values;
}

}  // namespace braid::worker
