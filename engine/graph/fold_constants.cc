#include "engine/graph/fold_constants.h"

#include <cstddef>
#include <string>

#include "engine/graph/passes.h"
#include "engine/ir/constant_folder.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

constexpr std::size_t kMaxFoldedBytes = std::size_t{64} << 20;  // of a node's inputs and outputs
constexpr std::size_t kMaxGrowth = 2;                           // outputs against inputs

bool is_known(const Graph& graph, const Node& node) {
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
    if (!graph.known_value({node.id, o})) return false;
  return true;
}

}  // namespace

void fold_constants(Plan& plan) {
  Graph& graph = plan.program.graph;
  ConstantFolder folder(kMaxFoldedBytes);
  int folded = 0;
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    if (node.inputs.empty() || plan.is_fed(node) || is_known(graph, node)) continue;
    std::vector<OutputInfo> infos;
    std::vector<const Tensor*> values;
    std::size_t in_bytes = 0, out_bytes = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      infos.push_back(graph.info(node.inputs[i]));
      values.push_back(graph.known_value(node.inputs[i]));
      if (values.back() && !uses_shape_only(node, i)) in_bytes += values.back()->bytes();
    }
    bool is_fed_in_part = false;
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
      const OutputInfo& info = node.outputs[static_cast<std::size_t>(o)];
      is_fed_in_part = is_fed_in_part || plan.feed_of({id, o}) >= 0;
      if (info.shape.is_static())
        out_bytes += static_cast<std::size_t>(info.shape.elements()) * dtype_size(info.dtype);
    }
    if (is_fed_in_part || out_bytes > kMaxGrowth * in_bytes) continue;
    std::vector<Tensor> outputs = folder.fold(node, infos, values);
    if (outputs.empty()) continue;
    graph.mutable_node(id).known_values = std::move(outputs);
    ++folded;
  }
  if (folded > 0) plan.note(std::to_string(folded) + " large nodes are constants");
}

}  // namespace braid
