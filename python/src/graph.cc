// Graphs as Python builds them: nodes of the typed graph, whose types and shapes are inferred at once.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "engine/import/onnx/any_graph.h"
#include "engine/import/write_graph.h"
#include "engine/ir/op.h"
#include "engine/ir/op_library.h"
#include "proto/graph.pb.h"
#include "python/src/arrays.h"
#include "python/src/bind.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

using Value = std::pair<NodeId, int>;

NodeId add(Graph& graph, const std::string& op, const std::string& name, const std::vector<Value>& inputs,
           const nb::dict& attrs, const std::vector<NodeId>& control, int stream, NodeId colocate,
           const std::string& device, bool include_grad) {
  const OpDef* const def = OpRegistry::global().find(op);
  if (!def) throw InvalidArgument("[" + op + "] node '" + name + "': there is no such op");
  Node node;
  node.op = def;
  node.name = graph.unique_name(name);
  for (const auto& [from, output] : inputs) node.inputs.push_back({from, output});
  for (const auto& [key, value] : attrs) {
    const auto attr = nb::cast<std::string>(key);
    node.attrs.set(attr, to_attr(attr, value));
  }
  node.control_inputs = control;
  node.stream = stream < 0 ? kNoStream : stream;
  node.colocate_with = colocate;
  node.device = device;
  node.include_grad = include_grad;
  return graph.add(std::move(node));
}

nb::tuple info(const Graph& graph, NodeId node, int output) {
  const OutputInfo& found = graph.node(node).outputs.at(static_cast<std::size_t>(output));
  return nb::make_tuple(static_cast<int>(found.dtype), from_shape(found.shape));
}

nb::object known_value(const Graph& graph, NodeId node, int output) {
  const Tensor* const value = graph.known_value({node, output});
  return value ? to_array(*value) : nb::none();
}

/// (variable, handle's node, dense value or None, (indices, values) or None) of each.
nb::list gradients(Graph& graph, const Value& loss) {
  std::vector<VariableGradient> found;
  {
    const nb::gil_scoped_release released;
    found = add_gradients(graph, {loss.first, loss.second});
  }
  const auto value = [](ValueRef ref) { return nb::make_tuple(ref.node, ref.output); };
  nb::list result;
  for (const VariableGradient& each : found) {
    const nb::object dense = each.slices ? nb::none() : nb::object(value(each.dense));
    const nb::object rows =
        each.slices ? nb::object(nb::make_tuple(value(each.slices->indices), value(each.slices->values)))
                    : nb::none();
    result.append(nb::make_tuple(each.variable.name, each.variable.handle, dense, rows));
  }
  return result;
}

nb::list variables(const Graph& graph) {
  nb::list result;
  for (const VariableInfo& each : list_variables(graph))
    result.append(nb::make_tuple(each.name, each.handle, static_cast<int>(each.dtype), from_shape(each.shape),
                                 each.trainable));
  return result;
}

void write(const Graph& graph, const std::string& file) {
  const nb::gil_scoped_release released;
  write_graph_file(to_graph_def(graph), file);
}

Graph load(const std::string& file, const std::vector<std::string>& roots) {
  const nb::gil_scoped_release released;
  return import_graph(read_any_graph(file, {}), file, {.roots = roots});
}

nb::list node(const Graph& graph, NodeId id) {
  const Node& found = graph.node(id);
  nb::list inputs;
  for (const ValueRef input : found.inputs) inputs.append(nb::make_tuple(input.node, input.output));
  nb::dict attrs;
  for (const auto& [name, value] : found.attrs) attrs[name.c_str()] = from_attr(value);
  nb::list result;
  result.append(found.name);
  result.append(found.op->name);
  result.append(inputs);
  result.append(static_cast<int>(found.outputs.size()));
  result.append(attrs);
  result.append(found.stream);
  result.append(found.device);
  return result;
}

/// What the registry says of its ops: (name, least and most inputs, gradient or why not, kernels, stateful).
nb::list registered_ops() {
  nb::list ops;
  for (const OpDef* op : OpRegistry::global().all())
    ops.append(nb::make_tuple(op->name, op->min_inputs, op->max_inputs, static_cast<bool>(op->gradient),
                              op->no_gradient_reason, static_cast<bool>(op->cpu), static_cast<bool>(op->cuda),
                              op->stateful, static_cast<bool>(op->fold), op->side_effect));
  return ops;
}

}  // namespace

void bind_graph(nb::module_& module) {
  module.def(
      "load_op_library", [](const std::string& path) { return load_op_library(path, OpRegistry::global()); },
      nb::arg("path"), "Names of the ops that the library adds.");
  module.def("loaded_op_libraries", loaded_op_libraries, "Full paths, in the order of loading.");
  nb::class_<Graph>(module, "Graph", "Nodes with inferred types and shapes; values are (node, output).")
      .def(nb::init<>())
      .def("add", add, nb::arg("op"), nb::arg("name"), nb::arg("inputs"), nb::arg("attrs"),
           nb::arg("control"), nb::arg("stream"), nb::arg("colocate"), nb::arg("device"),
           nb::arg("include_grad"))
      .def(
          "control",
          [](Graph& g, NodeId before, NodeId node) { g.mutable_node(node).control_inputs.push_back(before); },
          nb::arg("before"), nb::arg("node"))
      .def("info", info, nb::arg("node"), nb::arg("output"))
      .def("known_value", known_value, nb::arg("node"), nb::arg("output"))
      .def(
          "outputs", [](const Graph& g, NodeId id) { return g.node(id).outputs.size(); }, nb::arg("node"))
      .def(
          "name", [](const Graph& g, NodeId id) { return g.node(id).name; }, nb::arg("node"))
      .def(
          "find", [](const Graph& g, const std::string& name) { return g.find(name); }, nb::arg("name"))
      .def(
          "unique_name", [](const Graph& g, const std::string& name) { return g.unique_name(name); },
          nb::arg("name"))
      .def("node", node, nb::arg("node"))
      .def("size", [](const Graph& g) { return g.size(); })
      .def("gradients", gradients, nb::arg("loss"))
      .def("variables", variables)
      .def("write", write, nb::arg("file"))
      .def_static("load", load, nb::arg("file"), nb::arg("roots"));
  module.def("registered_ops", registered_ops);
}

}  // namespace braid::python
