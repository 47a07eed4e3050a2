#include "engine/graph/shape_values.h"

#include "engine/ir/op.h"

namespace braid {

int unknown_shape_value(const Graph& graph, const Node& node) {
  const int inputs = static_cast<int>(node.inputs.size());
  for (const int listed : node.op->shape_values) {
    const int input = listed < 0 ? listed + inputs : listed;
    if (input < 0 || input >= inputs) continue;
    const ValueRef value = node.inputs[static_cast<std::size_t>(input)];
    if (graph.info(value).dtype != DType::Resource && !graph.known_value(value)) return input;
  }
  return -1;
}

}  // namespace braid
