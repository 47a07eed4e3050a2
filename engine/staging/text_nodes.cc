#include "engine/staging/text_nodes.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/ir/constant_folder.h"
#include "engine/ir/op.h"
#include "engine/staging/graph_stage.h"

namespace braid {
namespace {

using Values = std::vector<const Tensor*>;

bool makes_text(const Graph& graph, const Node& node) {
  if (node.op->role == OpRole::Placeholder || node.op->role == OpRole::Constant) return false;
  if (node.op->fold) return true;
  for (int output = 0; output < static_cast<int>(node.outputs.size()); ++output)
    if (node.outputs[static_cast<std::size_t>(output)].dtype == DType::String &&
        !graph.known_value({node.id, output}))
      return true;
  return false;
}

}  // namespace

TextNodes::TextNodes(const Graph& graph, const std::vector<ValueRef>& roots,
                     const std::vector<ValueRef>& given)
    : graph_(graph) {
  const GraphPart part = part_above(graph, roots, {}, given);
  std::set<NodeId> text;
  for (const NodeId id : part.nodes)
    if (makes_text(graph, graph.node(id))) text.insert(id);
  if (text.empty()) return;
  for (const NodeId id : graph.topological_order())
    if (text.contains(id)) nodes_.push_back(id);
}

std::vector<ValueRef> TextNodes::advance(Known& known) const {
  if (nodes_.empty()) return {};
  std::set<NodeId> pending;
  std::set<ValueRef> missing;
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    if (known.contains({id, 0})) continue;
    Values inputs;
    std::vector<ValueRef> unknown;
    for (const ValueRef input : node.inputs) {
      const auto at = known.find(input);
      inputs.push_back(at != known.end() ? &at->second : graph_.known_value(input));
      if (!inputs.back()) unknown.push_back(input);
    }
    if (!unknown.empty()) {
      pending.insert(id);
      missing.insert(unknown.begin(), unknown.end());
      continue;
    }
    std::vector<Tensor> outputs = evaluate(node, inputs);
    for (std::size_t output = 0; output < outputs.size(); ++output)
      known.emplace(ValueRef{id, static_cast<int>(output)}, std::move(outputs[output]));
  }
  // What lies behind other text has its turn when that is there.
  std::vector<ValueRef> given, ready;
  for (const auto& [value, tensor] : known) given.push_back(value);
  for (const ValueRef value : missing) {
    const GraphPart part = part_above(graph_, {value}, {}, given);
    if (std::none_of(part.nodes.begin(), part.nodes.end(), [&](NodeId id) { return pending.contains(id); }))
      ready.push_back(value);
  }
  return ready;
}

std::vector<Tensor> TextNodes::evaluate(const Node& node, const Values& inputs) const {
  try {
    std::vector<OutputInfo> infos;
    for (const Tensor* input : inputs) infos.push_back({input->dtype(), input->shape()});
    InferContext context(node, infos, inputs);
    node.op->infer(context);
    Node inferred = node;  // its shapes are those of this record
    inferred.outputs = context.take_outputs();
    std::vector<Tensor> outputs = ConstantFolder(SIZE_MAX).fold(inferred, infos, inputs);
    if (outputs.empty()) throw InvalidArgument("it makes text in a way that only constants can");
    return outputs;
  } catch (const InvalidArgument& e) {
    const std::string place = place_of(node);
    throw InvalidArgument(e.message().starts_with(place) ? e.message() : place + ": " + e.message());
  }
}

}  // namespace braid
