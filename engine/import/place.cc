#include "engine/import/place.h"

#include "base/error.h"
#include "engine/import/widen.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

NodeId add_beside(Graph& graph, const Node& beside, const std::string& name, const char* op,
                  std::vector<ValueRef> inputs, AttrMap attrs, NodeId after) {
  Node node;
  node.name = name;
  node.op = &OpRegistry::global().require(op);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  if (after != kNoNode && node.inputs.empty()) node.control_inputs = {after};
  node.device = beside.device;
  node.stream = beside.stream;
  node.include_grad = beside.include_grad;
  return graph.add(std::move(node));
}

NodeId add_cast(Graph& graph, const Node& beside, const std::string& name, ValueRef input, DType to) {
  return add_beside(graph, beside, name, "Cast", {input}, {{"SrcT", graph.info(input).dtype}, {"DstT", to}},
                    kNoNode);
}

/// An integer's largest and smallest elements are of its own range, also where there are none to compare.
ValueRef within_range(Graph& graph, const Node& beside, ValueRef wide, DType narrow) {
  const std::size_t bits = 8 * dtype_size(narrow);
  const bool is_signed = narrow == DType::Int8 || narrow == DType::Int16;
  const std::int64_t low = is_signed ? -(std::int64_t{1} << (bits - 1)) : 0;
  const std::int64_t high = (std::int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  const auto bound = [&](std::int64_t value) {
    const Tensor tensor = graph.info(wide).dtype == DType::Int64
                              ? Tensor::scalar<std::int64_t>(value)
                              : Tensor::scalar<std::int32_t>(static_cast<std::int32_t>(value));
    return ValueRef{add_beside(graph, beside, graph.unique_name(beside.name + "/bound"), "Const", {},
                               {{"dtype", tensor.dtype()}, {"value", tensor}}, kNoNode),
                    0};
  };
  return {add_beside(graph, beside, graph.unique_name(beside.name + "/range"), "ClipByValue",
                     {wide, bound(low), bound(high)}, {}, kNoNode),
          0};
}

NodeId place_widened(Graph& graph, Node node) {
  const std::string name = node.name;
  const DType type = node.attrs.get("T", DType::Invalid);
  DType narrow = DType::Invalid;  // of the data: T where an input has it, else of the last that is narrow
  for (ValueRef& input : node.inputs) {
    if (static_cast<std::size_t>(input.output) >= graph.node(input.node).outputs.size())
      continue;  // add() tells
    const DType dtype = graph.info(input).dtype;
    const std::optional<DType> wide = compute_type(*node.op, dtype);
    if (!wide) continue;
    if (narrow != type || narrow == DType::Invalid) narrow = dtype;
    input = {add_cast(graph, node, graph.unique_name(name + "/widen"), input, *wide), 0};
  }
  const DType result = node.attrs.get("Tout", narrow);  // a product's can be wider than its factors
  node.name = graph.unique_name(name + "/wide");
  const Node beside = node;  // of whose stream and device the Casts are
  const NodeId wide = graph.add(std::move(node));
  const int outputs = static_cast<int>(graph.node(wide).outputs.size());
  std::vector<ValueRef> results;
  for (int o = 0; o < outputs; ++o) {
    const bool narrows =
        has_data_type(*beside.op, o) && graph.info({wide, o}).dtype == compute_type(*beside.op, narrow);
    const std::string cast_name = outputs == 1 ? name : graph.unique_name(name + "/narrow");
    ValueRef value{wide, o};
    const bool is_integer = narrow != DType::Float16 && narrow != DType::BFloat16;
    if (narrows && is_integer && beside.op->traits.widening.keeps_range)
      value = within_range(graph, beside, value, narrow);
    results.push_back(narrows ? ValueRef{add_cast(graph, beside, cast_name, value, result), 0} : value);
  }
  if (outputs == 1 && results[0].node != wide) return results[0].node;
  return add_beside(graph, beside, name,
                    outputs == 1   ? "Identity"
                    : outputs == 0 ? "NoOp"
                                   : "IdentityN",
                    results, {}, wide);
}

}  // namespace

NodeId place_node(Graph& graph, Node node) {
  bool small = false, half = false;
  for (const ValueRef input : node.inputs) {
    if (static_cast<std::size_t>(input.output) >= graph.node(input.node).outputs.size()) continue;
    const DType dtype = graph.info(input).dtype;
    small = small || compute_type(*node.op, dtype);
    half = half || dtype == DType::Float16 || dtype == DType::BFloat16;
  }
  const bool takes_every_type = node.op->traits.widening.rule == Widening::Rule::None;
  if (!small || takes_every_type) return graph.add(std::move(node));
  if (half) return place_widened(graph, std::move(node));
  try {
    return graph.add(node);
  } catch (const InvalidArgument&) {
    return place_widened(graph, std::move(node));
  }
}

}  // namespace braid
