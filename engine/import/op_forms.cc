#include "engine/import/op_forms.h"

#include <algorithm>
#include <variant>

#include "engine/ir/tensor.h"

namespace braid {
namespace {

struct Renamed {
  std::string_view from, to;
};

constexpr Renamed kRenamed[] = {
    {"AccumulateNV2", "AddN"},
    {"BiasAddV1", "BiasAdd"},
    {"ConjugateTranspose", "Transpose"},
    {"DebugIdentity", "Identity"},
    {"GuaranteeConst", "Identity"},
    {"ScatterNdNonAliasingAdd", "TensorScatterAdd"},
    {"IsVariableInitialized", "VarIsInitializedOp"},
};

template <class T>
const T* find_attr(const PendingNode& node, std::string_view name) {
  const Attr* attr = node.attrs.find(name);
  return attr ? std::get_if<T>(static_cast<const AttrValue_*>(attr)) : nullptr;
}

/// A GatherV2 with batch axes is another op here.
void name_batch_gather(PendingNode& node) {
  const auto* batch_dims = find_attr<std::int64_t>(node, "batch_dims");
  if (batch_dims && *batch_dims != 0) node.op = "braid.BatchGather";
}

/// MaxPoolV2(x, ksize, strides) and MaxPoolGradV2(x, y, dy, ksize, strides): the last two become attributes.
void take_window_inputs(PendingGraph& graph, PendingNode& node, std::string_view op, std::size_t inputs) {
  if (node.inputs.size() != inputs + 2) return;
  const char* const names[] = {"ksize", "strides"};
  for (std::size_t i = 0; i < 2; ++i) {
    const PendingNode& source = graph.nodes[static_cast<std::size_t>(node.inputs[inputs + i].node)];
    const auto* value = source.op == "Const" ? find_attr<Tensor>(source, "value") : nullptr;
    if (!value || (value->dtype() != DType::Int32 && value->dtype() != DType::Int64))
      return node.add_problem(std::string(names[i]) + " must be a constant");
    node.attrs.set(names[i], tensor_to_int64s(*value));
  }
  node.inputs.resize(inputs);
  node.op = op;
}

}  // namespace

void rename_forms(PendingGraph& graph) {
  for (PendingNode& node : graph.nodes) {
    const auto* row = std::find_if(std::begin(kRenamed), std::end(kRenamed),
                                   [&](const Renamed& r) { return r.from == node.op; });
    if (row != std::end(kRenamed)) node.op = row->to;
    if (node.op == "GatherV2") name_batch_gather(node);
    if (node.op == "MaxPoolV2") take_window_inputs(graph, node, "MaxPool", 1);
    if (node.op == "MaxPoolGradV2") take_window_inputs(graph, node, "MaxPoolGrad", 3);
  }
}

}  // namespace braid
