#include "worker/model/onnx_file.h"

#include "base/log.h"
#include "engine/import/onnx/any_graph.h"
#include "worker/model/def_graph.h"

namespace braid::worker {

void make_statistic(ModelFile& file, const std::string& name, const std::string& next) {
  const NodeIndex index(file.graph);
  const int place = index.place(name);
  if (place < 0 || file.graph.node(place).op() != "Const") return;
  const std::string handle = free_name(index, name + "/handle"),
                    initial = free_name(index, name + "/initial"),
                    update = free_name(index, name + "/update");
  NodeDef value = file.graph.node(place);
  const AttrValue dtype = value.attr().at("dtype");
  NodeDef& read = *file.graph.mutable_node(place);
  read.set_op("ReadVariableOp");
  read.clear_attr();
  (*read.mutable_attr())["dtype"] = dtype;
  read.add_input(handle);
  NodeDef& variable = *file.graph.add_node();
  variable.set_name(handle);
  variable.set_op("VarHandleOp");
  (*variable.mutable_attr())["dtype"] = dtype;
  *(*variable.mutable_attr())["shape"].mutable_shape() = value.attr().at("value").tensor().tensor_shape();
  (*variable.mutable_attr())["shared_name"].set_s(name);
  value.set_name(initial);
  *file.graph.add_node() = std::move(value);
  file.facts.initial_values[name] = initial;
  file.statistics.insert(name);
  if (next.empty()) return;
  NodeDef& assign = *file.graph.add_node();
  assign.set_name(update);
  assign.set_op("AssignVariableOp");
  (*assign.mutable_attr())["dtype"] = dtype;
  assign.add_input(handle);
  assign.add_input(next);
}

ModelFile read_onnx_file(const std::string& file, OnnxUse use) {
  OnnxImport model = import_onnx(file, {}, OwnNodes::Made, use);
  ModelFile read;
  read.graph = std::move(model.graph);
  read.initializers.emplace(model.parameters.begin(), model.parameters.end());
  read.trains = model.trains;
  for (const OnnxStatistic& statistic : model.statistics)
    make_statistic(read, statistic.node, statistic.next);
  if (use == OnnxUse::AsWritten)
    for (const std::string& remark : model.remarks) log_warning("model.graph '{}': {}", file, remark);
  return read;
}

}  // namespace braid::worker
